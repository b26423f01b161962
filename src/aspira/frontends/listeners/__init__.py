"""Listeners open the sockets and hand requests to frontends: Envoy by default, or a portable one."""

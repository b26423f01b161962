"""Listeners open the sockets and hand requests to frontends: Envoy, or a portable one."""

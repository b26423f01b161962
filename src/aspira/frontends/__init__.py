"""Protocols: each turns requests of its wire format into calls of the service, and back."""

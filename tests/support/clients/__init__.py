"""Clients that tests drive step by step, and the proxy between a client and a broker."""

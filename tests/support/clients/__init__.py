"""Clients that tests drive by hand, and what stands between them and a broker."""

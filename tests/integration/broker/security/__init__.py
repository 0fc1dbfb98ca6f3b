"""Log-ins, TLS and attacks by unauthenticated peers."""

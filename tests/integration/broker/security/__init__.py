"""Log-ins, TLS, and strangers who attack them."""

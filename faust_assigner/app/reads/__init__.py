"""Requests for keys: answered by the owner, by a copy within a bound, or with 503; never with a wrong row."""

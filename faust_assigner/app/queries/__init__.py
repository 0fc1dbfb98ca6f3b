"""Requests for the value of a key: routing, freshness and reading."""

"""Requests for a key, such as web requests for a table row: routing, freshness and reading."""

"""Rounds in which a worker goes on processing what it keeps (KIP-429 over the classic protocol)."""

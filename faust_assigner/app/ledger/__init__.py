"""Writes the assignor's ledger in a running app: decisions, recoveries and partition samples."""

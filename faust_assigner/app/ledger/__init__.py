"""The assignor's ledger as a running app writes it: decisions, recoveries, partition samples."""

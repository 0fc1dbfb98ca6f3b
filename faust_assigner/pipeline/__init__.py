"""The data pipeline on Spark: history, weights, snapshots and simulations, computed from ledgers."""

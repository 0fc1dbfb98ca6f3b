"""The worker's metrics and probes."""

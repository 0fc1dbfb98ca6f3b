"""The worker's metrics and probes: one table of figures, read once a second, and its exporters."""

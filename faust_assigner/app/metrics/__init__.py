"""The worker's metrics ("figures") and probes: the table of figures, readings and exporters."""

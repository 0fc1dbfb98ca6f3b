"""The ``weights`` command: the cost of each partition, learned from samples."""

"""The ``weights`` command: learn the cost of each partition from samples."""

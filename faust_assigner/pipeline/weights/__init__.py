"""The ``weights`` command: what each partition costs, learned from samples."""

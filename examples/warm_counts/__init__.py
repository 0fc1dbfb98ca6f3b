"""Words counted in RocksDB, partition by partition; a partition moves with its state warm.

``python -m examples.warm_counts.app --help`` says how to run it; docs/how-to/service.md walks through it.
"""

"""Words counted in RocksDB, partition by partition; a partition moves with its state warm.

``python -m examples.warm_counts.app --help`` lists the options; docs/how-to/service.md explains the example.
"""

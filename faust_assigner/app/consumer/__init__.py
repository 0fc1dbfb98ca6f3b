"""The consumer and its thread: flow, fetching, commits, batches and unreadable partitions."""

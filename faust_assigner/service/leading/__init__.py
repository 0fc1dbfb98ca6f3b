"""The leader: elected by a lease, it plans, and moves partitions by hand-offs."""

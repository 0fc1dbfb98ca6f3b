"""The leader: elected by a lease. The leader plans, and moves partitions by hand-offs."""

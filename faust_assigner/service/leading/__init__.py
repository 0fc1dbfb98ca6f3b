"""The leader's side: one instance, elected by a lease, plans and moves partitions by hand-offs."""

"""One round, which is one rebalance of the group: the leader's decision and each member's part."""

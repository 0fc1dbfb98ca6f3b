"""One rebalance: the leader's round and the member's part in it."""

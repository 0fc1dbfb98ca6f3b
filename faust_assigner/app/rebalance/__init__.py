"""One rebalance: the leader's round and a member's part in the round."""

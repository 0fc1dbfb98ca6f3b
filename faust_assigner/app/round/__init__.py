"""One rebalance of a Faust app: what members say, what the leader decides, what each is told."""

"""``faust-assigner why``: the history of a partition or a member, from the ledgers of all workers."""

"""``faust-assigner why``: the story of a partition or a member, from the ledgers of all workers."""

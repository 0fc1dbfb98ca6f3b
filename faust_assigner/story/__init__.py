"""The command ``faust-assigner why``: explain a partition or a member from the ledgers of all workers."""

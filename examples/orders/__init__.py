"""A stateful join on Faust: orders join with customers; a replicated table keeps the totals."""

#: Partitions of the topics ``customers`` and ``orders`` and of both tables, all co-partitioned.
PARTITIONS = 12

"""A stateful join on Faust: orders meet their customers, totals are kept in a replicated table."""

#: Of the topics ``customers`` and ``orders`` and of both tables: equal numbers meet on one worker.
PARTITIONS = 12

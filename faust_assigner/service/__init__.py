"""The assigner service: moves partitions between living consumers by hand-offs, over etcd."""

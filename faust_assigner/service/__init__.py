"""The assigner service: partitions are handed from consumer to consumer without a stop, over etcd."""

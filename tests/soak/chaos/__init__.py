"""Random faults on the assigner service, etcd and consumers, with a sink that compares epochs."""

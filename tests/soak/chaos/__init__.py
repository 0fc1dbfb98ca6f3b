"""Random faults on the assigner service, its etcd and its consumers, with a sink that compares epochs."""

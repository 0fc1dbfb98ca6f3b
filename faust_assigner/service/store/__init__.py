"""Where the service keeps its state: one interface, in memory or in etcd."""

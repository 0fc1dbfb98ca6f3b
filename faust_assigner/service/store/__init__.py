"""The service's store: one interface, implemented in memory and in etcd."""

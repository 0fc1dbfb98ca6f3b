"""A job that runs once in a cluster, under the assigner service in place of a Kubernetes Lease."""

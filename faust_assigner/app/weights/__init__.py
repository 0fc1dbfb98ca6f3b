"""Learned weights in a running app: their sources, and their use by the leader."""

"""Learned weights in a running app: where they come from, and when the leader uses them."""

"""Requests for keys while partitions move, with real workers."""

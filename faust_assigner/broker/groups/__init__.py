"""The groups of one broker, around their pure machines: events in, effects out, offsets, configs, numbers."""

from faust_assigner.broker.groups.service import GroupService, Outcome, compute_now

__all__ = ["GroupService", "Outcome", "compute_now"]

"""The groups of one broker: the pure state machines with their storage, timers, configs and metrics."""

from faust_assigner.broker.groups.service import GroupService

__all__ = ["GroupService"]

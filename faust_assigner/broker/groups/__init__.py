"""The groups of one broker around the pure state machines: events, effects, offsets, configs, metrics."""

from faust_assigner.broker.groups.service import GroupService

__all__ = ["GroupService"]

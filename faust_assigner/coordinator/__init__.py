"""Kafka group coordination as pure state machines: ``step(event, now) -> effects``, no sockets, no clock."""

from faust_assigner.coordinator.classic import ClassicGroup, GroupLimits, State
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.offsets import Committed, OffsetBook

__all__ = ["ClassicGroup", "Code", "Committed", "GroupLimits", "OffsetBook", "State"]

"""Kafka's transaction coordinator as a pure function from a value and an event to a decision (KIP-98)."""

from faust_assigner.coordinator.transactions.machine import step
from faust_assigner.coordinator.transactions.state import (
    Decision,
    Marker,
    Place,
    State,
    Transaction,
    TransactionLimits,
)

__all__ = ["Decision", "Marker", "Place", "State", "Transaction", "TransactionLimits", "step"]

"""The server side of KIP-848, as a pure machine per group."""

from faust_assigner.coordinator.consumer.machine import ConsumerGroup

__all__ = ["ConsumerGroup"]

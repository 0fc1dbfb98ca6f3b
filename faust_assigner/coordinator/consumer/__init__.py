"""The server side of KIP-848, as one pure state machine per group."""

from faust_assigner.coordinator.consumer.machine import ConsumerGroup

__all__ = ["ConsumerGroup"]

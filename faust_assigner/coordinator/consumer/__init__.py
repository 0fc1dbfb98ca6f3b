"""KIP-848 on the server, as one pure machine per group."""

from faust_assigner.coordinator.consumer.machine import ConsumerGroup

__all__ = ["ConsumerGroup"]

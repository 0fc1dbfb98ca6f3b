"""Kafka group coordination as pure state machines: ``step(event, now) -> effects``, no sockets, no clock."""

"""Actions of real consumers that their API does not offer."""

from __future__ import annotations

from aiokafka import AIOKafkaConsumer


async def die(consumer: AIOKafkaConsumer) -> None:
    """Stop without leaving the group, as a killed process does; end all tasks here."""

    async def stay() -> None:
        """Send no LeaveGroup."""

    if consumer._coordinator is not None:
        consumer._coordinator._maybe_leave_group = stay
    await consumer.stop()

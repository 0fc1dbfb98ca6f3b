"""What real consumers do in tests that their API does not offer."""

from __future__ import annotations

from aiokafka import AIOKafkaConsumer


async def die(consumer: AIOKafkaConsumer) -> None:
    """Go silent without leaving the group, as a killed process does; nothing of it stays behind here."""

    async def stay() -> None:
        """Say no goodbye."""

    if consumer._coordinator is not None:
        consumer._coordinator._maybe_leave_group = stay
    await consumer.stop()

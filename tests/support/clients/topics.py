"""Create topics with aiokafka's admin client."""

from __future__ import annotations

from collections.abc import Mapping

from aiokafka.admin import AIOKafkaAdminClient, NewTopic


async def create_topics(
    bootstrap: str, topics: Mapping[str, int], *, compacted: Mapping[str, int] | None = None
) -> None:
    """Create topics (topic -> partitions); ``compacted`` ones keep each key's last record.

    Existing topics stay as they are.
    """
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics(
            [NewTopic(name, count, 1) for name, count in topics.items()]
            + [
                NewTopic(name, count, 1, topic_configs={"cleanup.policy": "compact"})
                for name, count in (compacted or {}).items()
            ]
        )
    finally:
        await admin.close()

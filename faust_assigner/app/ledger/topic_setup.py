"""Creates the ledger's topic if it is missing, and reads the size of its largest batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import TopicAlreadyExistsError, for_code

#: Partitions, maximum replicas (at most one per broker) and retention of a topic that the ledger
#: creates.
PARTITIONS, MOST_REPLICAS, RETENTION_MS = 4, 3, 30 * 86_400_000
#: Kafka's smallest and largest segment size.
SEGMENT_BYTES = 1024 * 1024, 2**31 - 1
#: Kafka's default for max.message.bytes, used if the broker does not report it.
MESSAGE_BYTES = 1_048_588


class TopicSetup:
    """Creates ``topic``, limited to ``total_bytes`` over all partitions.

    A segment has ``segment_bytes``, within Kafka's limits and the limit of a partition.

    ``log_once(name, message)`` logs a message at the first call with this name.
    """

    def __init__(
        self,
        topic: str,
        *,
        segment_bytes: int,
        total_bytes: int,
        log_once: Callable[[str, str], None],
    ) -> None:
        self.topic, self._log_once = topic, log_once
        self._retention_bytes = max(SEGMENT_BYTES[0], total_bytes // PARTITIONS)
        least, most = SEGMENT_BYTES
        self._segment_bytes = max(least, min(segment_bytes, self._retention_bytes, most))

    async def prepare(self, connection: Mapping[str, object]) -> int:
        """Create the topic if it is missing; return the bytes of its largest batch."""
        admin = AIOKafkaAdminClient(**connection)
        try:
            await admin.start()
            if self.topic not in await admin.list_topics():
                await self._create(admin)
            config = await _topic_config(admin, self.topic)
        finally:
            await admin.close()
        if "compact" in config.get("cleanup.policy", ""):
            self._log_once(
                "compacted",
                f"Topic {self.topic} of the ledger is compacted: newer rows of a worker replace its older "
                "ones. Set its cleanup.policy to delete",
            )
        return int(config.get("max.message.bytes", MESSAGE_BYTES))

    async def _create(self, admin: AIOKafkaAdminClient) -> None:
        brokers = len((await admin.describe_cluster())["brokers"])
        answer = await admin.create_topics(
            [
                NewTopic(
                    self.topic,
                    PARTITIONS,
                    min(MOST_REPLICAS, brokers),
                    topic_configs={
                        "cleanup.policy": "delete",
                        "retention.ms": str(RETENTION_MS),
                        "retention.bytes": str(self._retention_bytes),
                        "segment.bytes": str(self._segment_bytes),
                    },
                )
            ]
        )
        for _, code, *words in answer.topic_errors:
            error = for_code(code)
            # A different worker may have created the topic in the meantime.
            if code and error is not TopicAlreadyExistsError:
                raise error(
                    f"topic {self.topic} does not exist and cannot be created: "
                    f"{words[0] if words else ''}"
                )


async def _topic_config(admin: AIOKafkaAdminClient, topic: str) -> dict[str, str]:
    """Return the topic's batch size and cleanup policy; empty if the broker does not describe them."""
    wanted = dict.fromkeys(("max.message.bytes", "cleanup.policy"))
    answers = await admin.describe_configs(
        [ConfigResource(ConfigResourceType.TOPIC, topic, dict(wanted))]
    )
    return {
        entry[0]: entry[1]
        for answer in answers
        for error, _, _, _, entries, *_ in answer.resources
        for entry in (entries if error == 0 else ())
        if entry[0] in wanted and entry[1] is not None
    }

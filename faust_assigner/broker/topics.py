"""The catalogue of topics: their ids, configs and partition logs; restored from the store."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from kio.schema.errors import ErrorCode

from faust_assigner.broker import limits
from faust_assigner.broker.settings import Settings
from faust_assigner.broker.storage.entries import KINDS
from faust_assigner.broker.storage.log import PartitionLog
from faust_assigner.broker.storage.restoring import restore_logs
from faust_assigner.broker.storage.store import Range, Store, prefix_range
from faust_assigner.broker.topic_configs import check_configs
from faust_assigner.errors import FaustAssignerError


class Refused(FaustAssignerError):
    """Raised for a valid request that the broker refuses, with the Kafka error and a message."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error
        self.message = message


@dataclass(slots=True)
class Topic:
    """One topic. ``configs`` are the explicitly set configs, by Kafka name."""

    name: str
    topic_id: uuid.UUID
    partitions: list[PartitionLog]
    configs: dict[str, str] = field(default_factory=dict)


class Catalogue:
    """All topics by name and by id. Each change that Metadata would show increases ``version``."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        new_uuid: Callable[[], uuid.UUID],
        *,
        progress: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._settings = settings
        self._new_uuid = new_uuid
        self._topics: dict[str, Topic] = {}
        self._names: dict[uuid.UUID, str] = {}
        self._partitions = 0
        self.version = 0
        self.on_change: Callable[[str], None] = lambda name: None
        #: Returns the keys that the first write of a new topic deletes: left-overs of a topic of its name.
        self.stale_keys: Callable[[str], Collection[bytes]] = lambda name: ()
        self._finish_deletions()
        self._restore(progress)

    def _restore(self, progress: Callable[[], None]) -> None:
        """Restore all topics and their logs; ``progress`` may raise to stop the start."""
        for key, value in self._store.scan(b"t"):
            saved = json.loads(value)
            self._open(
                key[1:].decode(), uuid.UUID(saved["id"]), saved["partitions"], saved["configs"]
            )
            progress()
        logs = (log for topic in self for log in topic.partitions)
        restore_logs(self._store, logs, progress)

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._topics.values())

    def __len__(self) -> int:
        return len(self._topics)

    def get(self, name: str | None) -> Topic | None:
        """Return a topic by its name, or None."""
        return self._topics.get(name) if name is not None else None

    def by_id(self, topic_id: uuid.UUID | None) -> Topic | None:
        """Return a topic by its id, or None."""
        return self._topics.get(self._names.get(topic_id, "")) if topic_id is not None else None

    def partition(self, name: str, number: int) -> PartitionLog | None:
        """Return a partition's log, or None if the topic or the partition does not exist."""
        topic = self._topics.get(name)
        return (
            topic.partitions[number]
            if topic is not None and 0 <= number < len(topic.partitions)
            else None
        )

    def at(self, topic_id: bytes, number: int) -> tuple[Topic, PartitionLog] | None:
        """Return a topic and a partition's log by the bytes of the topic's id, or None."""
        topic = self.by_id(uuid.UUID(bytes=topic_id))
        if topic is None or not 0 <= number < len(topic.partitions):
            return None
        return topic, topic.partitions[number]

    def create(
        self, name: str, partitions: int, configs: Mapping[str, str], *, validate_only: bool = False
    ) -> Topic:
        """Create a topic; -1 partitions means the default number. Raises Refused."""
        problem = limits.topic_name_problem(name)
        if problem is not None:
            raise Refused(ErrorCode.invalid_topic_exception, problem)
        if name in self._topics:
            raise Refused(ErrorCode.topic_already_exists, f"topic {name!r} already exists")
        count = self._settings.num_partitions if partitions == -1 else partitions
        if not 1 <= count <= limits.MAX_PARTITIONS_PER_TOPIC:
            raise Refused(
                ErrorCode.invalid_partitions,
                f"a topic with {count} partitions is refused; 1 to "
                f"{limits.MAX_PARTITIONS_PER_TOPIC} are allowed",
            )
        self._check_room(count, topics=1)
        problem = check_configs(configs)
        if problem is not None:
            raise Refused(ErrorCode.invalid_config, problem)
        topic_id = self._new_uuid()
        if validate_only:
            return Topic(name, topic_id, [], dict(configs))
        self._save(name, topic_id, count, configs, self.stale_keys(name))
        topic = self._open(name, topic_id, count, configs)
        self._changed(name)
        return topic

    def grow(self, topic: Topic, count: int, *, validate_only: bool = False) -> None:
        """Add partitions up to ``count``; never remove any. Raises Refused."""
        have = len(topic.partitions)
        if count <= have:
            raise Refused(
                ErrorCode.invalid_partitions,
                f"topic {topic.name!r} has {have} partitions; the new count must be higher, got {count}",
            )
        if count > limits.MAX_PARTITIONS_PER_TOPIC:
            raise Refused(
                ErrorCode.invalid_partitions,
                f"a topic may have at most {limits.MAX_PARTITIONS_PER_TOPIC} partitions",
            )
        self._check_room(count - have, topics=0)
        if validate_only:
            return
        self._save(topic.name, topic.topic_id, count, topic.configs)
        topic.partitions += [
            PartitionLog(self._store, topic.topic_id.bytes, n) for n in range(have, count)
        ]
        self._partitions += count - have
        self._changed(topic.name)

    def configure(
        self, topic: Topic, configs: Mapping[str, str], *, validate_only: bool = False
    ) -> None:
        """Replace the explicit configs. Raises Refused."""
        problem = check_configs(configs)
        if problem is not None:
            raise Refused(ErrorCode.invalid_config, problem)
        if not validate_only:
            self._save(topic.name, topic.topic_id, len(topic.partitions), configs)
            topic.configs = dict(configs)

    def delete(self, topic: Topic) -> None:
        """Delete a topic and its records, in one write."""

        def keys() -> Iterator[bytes]:
            return (key for log in topic.partitions for key in log.every_key())

        ranges = [prefix_range(kind + topic.topic_id.bytes, keys) for kind in KINDS]
        self._store.write((), [b"t" + topic.name.encode()], ranges=ranges)
        del self._topics[topic.name]
        del self._names[topic.topic_id]
        self._partitions -= len(topic.partitions)
        self._changed(topic.name)
        for log in topic.partitions:
            self._store.forget_end(log.place)
            log.close()

    def _changed(self, name: str) -> None:
        self.version += 1
        self.on_change(name)

    def _finish_deletions(self) -> None:
        """Complete the deletions that an earlier version of the broker had begun."""
        for note, _ in list(self._store.scan(b"d")):
            ranges: list[Range] = [prefix_range(kind + note[1:]) for kind in KINDS]
            self._store.write((), [note], ranges=ranges)

    def _check_room(self, partitions: int, *, topics: int) -> None:
        total = self._partitions + partitions
        if len(self) + topics > limits.MAX_TOPICS or total > limits.MAX_PARTITIONS:
            raise Refused(
                ErrorCode.policy_violation,
                f"the broker allows at most {limits.MAX_TOPICS} topics and {limits.MAX_PARTITIONS} "
                "partitions",
            )

    def _save(
        self,
        name: str,
        topic_id: uuid.UUID,
        count: int,
        configs: Mapping[str, str],
        deletes: Collection[bytes] = (),
    ) -> None:
        saved = {"id": str(topic_id), "partitions": count, "configs": dict(configs)}
        self._store.write([(b"t" + name.encode(), json.dumps(saved).encode())], deletes)

    def _open(
        self, name: str, topic_id: uuid.UUID, count: int, configs: Mapping[str, str]
    ) -> Topic:
        logs = [PartitionLog(self._store, topic_id.bytes, n) for n in range(count)]
        topic = self._topics[name] = Topic(name, topic_id, logs, dict(configs))
        self._names[topic_id] = name
        self._partitions += count
        return topic

"""Members of the consumer protocol (KIP-848) by raw requests; answers are logged in a common form.

The same script runs on Apache Kafka and on ours: ids become names, partitions become
``topic:numbers``.
"""

from __future__ import annotations

import datetime
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeAlias

from faust_assigner.broker import EmbeddedBroker
from faust_assigner.testing.kafka import SETTINGS, KafkaServer
from tests.support.clients.raw_client import RawClient

NOT_YET = (14, 15, 16)  # a coordinator that is still starting
GROUP_RESOURCE = 32
SETTLED_AFTER = 3  # calm heartbeats in a row
PATIENCE = 60  # heartbeats until a member must be settled
TOLD_AFTER_S = 0.3  # Kafka informs its coordinator late; an earlier heartbeat changes the epoch
Told = tuple[Any, ...]
Story: TypeAlias = "Callable[[ConsumerScript], None]"


def span(value: int) -> datetime.timedelta:
    """Milliseconds for kio."""
    return datetime.timedelta(milliseconds=value)


class ConsumerScript:
    """A group and its topics on a broker, with a log of all answers."""

    def __init__(self, bootstrap: str, group: str = "", *, interval_ms: int = 0) -> None:
        self.bootstrap = bootstrap
        self.group = group or f"group-{uuid.uuid4().hex[:8]}"
        self.client = RawClient(bootstrap, 30)
        self.log: list[Told] = []
        self.names: dict[uuid.UUID, str] = {}  # topic id -> the script's name of the topic
        self.real: dict[str, str] = {}
        self.members: dict[str, str] = {}  # member id -> name in the script
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, list[dict[str, Any]]] = {}
        self.first_epoch: int | None = None
        self._await_coordinator()
        change = {
            "name": "consumer.assignment.interval.ms",
            "config_operation": 0,
            "value": str(interval_ms),
        }
        resource = {
            "resource_type": GROUP_RESOURCE,
            "resource_name": self.group,
            "configs": [change],
        }
        answer = self.client.call(44, 1, resources=[resource])
        assert answer.responses[0].error_code == 0, answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.client.socket.close()

    def _await_coordinator(self) -> None:
        ghost = {"group_id": self.group, "generation_id": 1, "member_id": "ghost"}
        while (
            self.client.call(10, 3, key=self.group).error_code != 0
            or self.client.call(12, 3, **ghost).error_code in NOT_YET
        ):
            time.sleep(0.1)

    # -- topics ----------------------------------------------------------------------------------

    def topic(self, name: str, partitions: int) -> None:
        """Create a topic of the group; the log calls it ``name``."""
        self.real[name] = real = f"{self.group}-{name}"
        wanted = {"name": real, "num_partitions": partitions, "replication_factor": 1}
        answer = self.client.call(19, 7, topics=[wanted], timeout=span(10_000))
        assert answer.topics[0].error_code == 0, answer
        self.names[answer.topics[0].topic_id] = name
        while self.client.call(3, 12, topics=[{"name": real}]).topics[0].error_code != 0:
            time.sleep(0.05)
        time.sleep(TOLD_AFTER_S)

    def grow(self, name: str, partitions: int) -> None:
        """Grow a topic of the group."""
        wanted = {"name": self.real[name], "count": partitions, "assignments": None}
        answer = self.client.call(37, 3, topics=[wanted], timeout=span(10_000))
        assert answer.results[0].error_code == 0, answer
        time.sleep(TOLD_AFTER_S)

    def remove(self, name: str) -> None:
        """Delete a topic of the group."""
        wanted = {"name": self.real[name], "topic_id": None}
        answer = self.client.call(20, 6, topics=[wanted], timeout=span(10_000))
        assert answer.responses[0].error_code == 0, answer
        time.sleep(TOLD_AFTER_S)

    def topic_id(self, name: str) -> uuid.UUID:
        """Return the id of a topic of the group."""
        return next(key for key, known in self.names.items() if known == name)

    def shown(self, listed: Sequence[Any] | None) -> Any:
        """Return partitions as text; None if none are given."""
        if listed is None:
            return None
        return sorted(f"{self.names.get(t.topic_id, '?')}:{sorted(t.partitions)}" for t in listed)

    # -- members ---------------------------------------------------------------------------------

    def send(self, who: str, epoch: int, *, version: int = 1, **changes: Any) -> Any:
        """Send a ConsumerGroupHeartbeat; the member's id is ``who`` after the group's name."""
        member_id = changes.pop("member_id", f"{self.group}-{who}")
        self.members.setdefault(member_id, who)
        values = {"group_id": self.group, "member_id": member_id, "member_epoch": epoch} | changes
        values.setdefault("topic_partitions", None)
        answer = self.client.call(68, version, **values)
        if self.first_epoch is None and answer.member_epoch > 0:
            self.first_epoch = answer.member_epoch
        return answer

    def joining(self, **changes: Any) -> dict[str, Any]:
        """Return the fields that a first heartbeat must have."""
        names = changes.pop("topics", ["a"])
        return {
            "rebalance_timeout": span(30_000),
            "subscribed_topic_names": [self.real.get(name, name) for name in names],
            "topic_partitions": [],
            **changes,
        }

    def beat(self, who: str, epoch: int, label: str = "", **changes: Any) -> Any:
        """Send a heartbeat and log its answer."""
        answer = self.send(who, epoch, **changes)
        assignment = answer.assignment
        self.log.append(
            (
                label or f"{who} at {epoch}",
                int(answer.error_code),
                answer.member_epoch if answer.error_code == 0 else "-",
                self.members.get(answer.member_id or "", "an id of its own"),
                int(answer.heartbeat_interval / span(1)),
                self.shown(assignment.topic_partitions) if assignment is not None else None,
            )
        )
        return answer

    def settle(self, *whos: str, label: str = "settled", **changes: Any) -> None:
        """Let these members take turns and acknowledge until no state changes; log the final state."""
        calm = 0
        for _ in range(PATIENCE):
            before = (dict(self.epochs), {who: self.shown_owned(who) for who in whos})
            for who in whos:
                self.go_on(who, **changes)
            after = (dict(self.epochs), {who: self.shown_owned(who) for who in whos})
            calm = calm + 1 if after == before else 0
            if calm >= SETTLED_AFTER:
                break
            time.sleep(0.05)
        assert calm >= SETTLED_AFTER, f"{whos} do not settle: {self.log}"
        self.log.append((label, [self.standing(who) for who in whos]))

    def begin_here(self) -> None:
        """Clear the log: Kafka looks for a pattern's topics only after it has answered."""
        self.log.clear()

    def standing(self, who: str) -> Told:
        """Return a member's name, epoch and partitions."""
        return who, self.epochs[who], self.shown_owned(who)

    def go_on(self, who: str, **changes: Any) -> Any:
        """Send a heartbeat as a well-behaved client: it owns its last assignment and no more."""
        epoch = self.epochs.get(who, 0)
        first = (
            self.joining(**changes) if epoch == 0 else {"topic_partitions": self.owned.get(who, [])}
        )
        answer = self.send(who, epoch, **first)
        assert answer.error_code == 0, (who, epoch, answer)
        self.epochs[who] = answer.member_epoch
        if answer.assignment is not None:
            self.owned[who] = [
                {"topic_id": t.topic_id, "partitions": list(t.partitions)}
                for t in answer.assignment.topic_partitions
            ]
        return answer

    def shown_owned(self, who: str) -> list[str]:
        """Return a member's partitions as text."""
        owned = self.owned.get(who, ())
        return sorted(f"{self.names[t['topic_id']]}:{sorted(t['partitions'])}" for t in owned)

    # -- offsets and administration --------------------------------------------------------------

    def commit(
        self, member: str, epoch: int, *, version: int = 9, label: str = "", **changes: Any
    ) -> None:
        """Commit partition 0 of topic a; ``member`` is a member's name, or empty."""
        topic = {"name": self.real["a"], "topic_id": self.topic_id("a")}
        values = {
            "group_id": self.group,
            "generation_id_or_member_epoch": epoch,
            "member_id": f"{self.group}-{member}" if member else "",
            "topics": [{**topic, "partitions": [{"partition_index": 0, "committed_offset": 7}]}],
        }
        answer = self.client.call(8, version, **values | changes)
        error = int(answer.topics[0].partitions[0].error_code)
        self.log.append((label or f"commit v{version} by {member or 'nobody'} at {epoch}", error))

    def fetch_offsets(
        self, member: str | None, epoch: int, *, version: int = 9, stable: bool = False
    ) -> None:
        """Fetch the offset of partition 0 of topic a."""
        topic = {"name": self.real["a"], "topic_id": self.topic_id("a"), "partition_indexes": [0]}
        member_id = f"{self.group}-{member}" if member else member
        group = {
            "group_id": self.group,
            "member_id": member_id,
            "member_epoch": epoch,
            "topics": [topic],
        }
        answer = self.client.call(9, version, groups=[group], require_stable=stable).groups[0]
        found = [
            [(p.partition_index, p.committed_offset) for p in t.partitions] for t in answer.topics
        ]
        self.log.append((f"fetch v{version} by {member} at {epoch}", int(answer.error_code), found))

    def describe(self, label: str = "describe") -> None:
        """Log ConsumerGroupDescribe, with members by name."""
        answer = self.client.call(69, 1, group_ids=[self.group]).groups[0]
        members = sorted(
            (
                self.members.get(m.member_id, "?"),
                m.instance_id,
                m.rack_id,
                m.member_epoch,
                m.client_id,
                sorted(self._name(n) for n in m.subscribed_topic_names),
                (m.subscribed_topic_regex or "").replace(self.group, "GROUP"),
                self.shown(m.assignment.topic_partitions),
                self.shown(m.target_assignment.topic_partitions),
                m.member_type,
            )
            for m in answer.members
        )
        # In an empty group Kafka's assignment epoch stays behind, ours does not.
        target = answer.assignment_epoch if answer.members else "-"
        epochs = answer.group_epoch, target
        head = (answer.group_state, *epochs, answer.assignor_name)
        message = (answer.error_message or "").replace(self.group, "GROUP")
        self.log.append((label, int(answer.error_code), message, head, members))

    def _name(self, real: str) -> str:
        return real.removeprefix(f"{self.group}-")

    def describe_classic(self, version: int = 6) -> None:
        """DescribeGroups."""
        group = self.client.call(15, version, groups=[self.group]).groups[0]
        message = (getattr(group, "error_message", "") or "").replace(self.group, "GROUP")
        told = (
            int(group.error_code),
            message,
            group.group_state,
            group.protocol_type,
            group.protocol_data,
        )
        self.log.append((f"DescribeGroups v{version}", *told, len(group.members)))

    def listed(self, **filters: Any) -> None:
        """Log ListGroups for this group."""
        answer = self.client.call(16, 5, **filters)
        mine = [
            (g.protocol_type, g.group_state, g.group_type)
            for g in answer.groups
            if g.group_id == self.group
        ]
        self.log.append(("ListGroups", str(filters), int(answer.error_code), mine))

    def delete(self) -> None:
        """DeleteGroups."""
        answer = self.client.call(42, 2, groups_names=[self.group]).results[0]
        self.log.append(("DeleteGroups", int(answer.error_code)))

    def delete_offsets(self, *names: str) -> None:
        """Delete the offset of partition 0 of these topics."""
        self.delete_offsets_of({self.real[n]: (0,) for n in names})

    def delete_offsets_of(self, places: Mapping[str, Sequence[int]]) -> None:
        """Delete offsets by the topics' real names; log the answer in a fixed order."""
        topics = [
            {"name": name, "partitions": [{"partition_index": p} for p in parts]}
            for name, parts in places.items()
        ]
        answer = self.client.call(47, 0, group_id=self.group, topics=topics)
        found = sorted(
            (
                self._name(t.name),
                sorted((p.partition_index, int(p.error_code)) for p in t.partitions),
            )
            for t in answer.topics
        )
        self.log.append(("OffsetDelete", int(answer.error_code), found))

    def classic_requests(self, who: str, generation: int = 1, **join: Any) -> None:
        """Send Heartbeat, SyncGroup and LeaveGroup of the classic protocol with a member's id."""
        member_id = f"{self.group}-{who}"
        ids = {"group_id": self.group, "member_id": member_id}
        beat = self.client.call(12, 4, generation_id=generation, **ids)
        sync = self.client.call(14, 5, generation_id=generation, **ids)
        self.log.append((f"classic requests of {who}", int(beat.error_code), int(sync.error_code)))

    def leave_by_admin(self, **member: Any) -> None:
        """Send LeaveGroup as the admin client does."""
        answer = self.client.call(13, 5, group_id=self.group, members=[member])
        told = [(m.group_instance_id, int(m.error_code)) for m in answer.members]
        self.log.append(("LeaveGroup", int(answer.error_code), told))

    def topic_page(self, names: list[str], **values: Any) -> None:
        """Log DescribeTopicPartitions."""
        values.setdefault("response_partition_limit", 2_000)
        topics = [{"name": self.real.get(name, name)} for name in names]
        answer = self.client.call(75, 0, topics=topics, **values)
        shown = [
            (
                int(t.error_code),
                self._name(t.name),
                self.names.get(t.topic_id),
                [
                    (
                        p.partition_index,
                        p.leader_id,
                        p.isr_nodes,
                        p.eligible_leader_replicas,
                        p.last_known_elr,
                    )
                    for p in t.partitions
                ],
            )
            for t in answer.topics
        ]
        cursor = answer.next_cursor
        following = (
            (self._name(cursor.topic_name), cursor.partition_index) if cursor is not None else None
        )
        self.log.append((f"page {names}", shown, following))

    def configure(
        self,
        name: str,
        value: str | None,
        *,
        operation: int = 0,
        group: str | None = None,
        keep: bool = False,
    ) -> None:
        """Send IncrementalAlterConfigs for the group; only a dry run unless ``keep``."""
        change = {"name": name, "config_operation": operation, "value": value}
        named = self.group if group is None else group
        resource = {"resource_type": GROUP_RESOURCE, "resource_name": named, "configs": [change]}
        answer = self.client.call(44, 1, resources=[resource], validate_only=not keep).responses[0]
        self.log.append((f"{name}={value}", int(answer.error_code), answer.error_message))


def assert_same(story: Story, kafka: KafkaServer) -> None:
    """Play ``story`` on ``kafka`` and on ours with equal settings; assert equal logs."""
    settings = {
        **{name: value for name, value in SETTINGS.items() if name.startswith("group.")},
        "group.consumer.assignors": "uniform,range",
        "group.consumer.min.session.timeout.ms": 45_000,
    }
    group, told = f"group-{uuid.uuid4().hex[:8]}", []
    with EmbeddedBroker(settings=settings) as broker:
        for bootstrap in (kafka.bootstrap, broker.bootstrap):
            with ConsumerScript(bootstrap, group) as script:
                story(script)
                told.append(script.log)
    theirs, ours = told
    assert [line for line in ours if line not in theirs] == [
        line for line in theirs if line not in ours
    ]
    assert ours == theirs

"""Committed offsets as a model: acknowledged commits exist, fenced ones do not; KIP-211 expires."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from faust_assigner.broker.groups import GroupService
from faust_assigner.coordinator.classic import State
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.offsets import Committed
from tests.property.classic_sim import acts
from tests.property.classic_sim.seen import GroupSeen
from tests.property.lives import must

UNKNOWN_TOPIC_OR_PARTITION = 3
Key = tuple[str, acts.Place]


def is_there(place: acts.Place) -> bool:
    """Whether the broker has the partition."""
    return place[0] in ("a", "b") and place[1] in (0, 1)


class Offsets:
    """The offsets: ``entries`` has every acknowledged commit, by group and partition."""

    def __init__(self, topics: Mapping[bytes, tuple[str, ...] | None]) -> None:
        self.topics = topics
        self.entries: dict[Key, Committed] = {}

    def of(self, group: str) -> dict[acts.Place, Committed]:
        """The offsets of a group."""
        return {place: entry for (name, place), entry in self.entries.items() if name == group}

    def check(self, service: GroupService) -> None:
        """B4: exactly the acknowledged commits exist."""
        for group in ("g", "tool"):
            held, expected = service.books.offsets(group).entries, self.of(group)
            must(held == expected, f"B4: the offsets of {group}", held, expected)

    def committed(
        self,
        act: acts.Commit,
        codes: Mapping[acts.Place, int],
        error: Code,
        now: int,
        disk_failed: bool,
    ) -> None:
        """Judge the answer to a commit, and remember the acknowledged offsets."""
        for place, offset in act.offsets.items():
            expected: int = error
            if not is_there(place):
                expected = UNKNOWN_TOPIC_OR_PARTITION
            elif error is Code.NONE and len(act.note) > 16:
                expected = Code.OFFSET_METADATA_TOO_LARGE
            elif error is Code.NONE and disk_failed:
                expected = Code.NOT_COORDINATOR
            must(codes[place] == expected, "a commit got the wrong answer", act, codes, expected)
            if expected is Code.NONE:
                expires = now + act.retention_ms if act.retention_ms >= 0 else None
                self.entries[act.group, place] = Committed(offset, 3, act.note, now, expires)

    def drop_topic(self, topic: str) -> None:
        """Drop the offsets of a deleted topic."""
        self.forget({key for key in self.entries if key[1][0] == topic})

    def drop_group(self, group: str) -> None:
        """Drop the offsets of a deleted group."""
        self.forget({key for key in self.entries if key[0] == group})

    def forget(self, keys: Any) -> None:
        """Drop these offsets."""
        for key in keys:
            self.entries.pop(key, None)

    def read_topics(self, seen: GroupSeen) -> set[str] | None:
        """The members' subscribed topics; None if a member's metadata has none."""
        read: set[str] = set()
        for member in seen.members.values():
            topics = self.topics.get(member.metadata(seen.protocol_name))
            if topics is None:
                return None
            read.update(topics)
        return read if seen.protocol_type == "consumer" else None

    def expired(self, seen: GroupSeen, empty_since: int, retention_ms: int, now: int) -> set[Key]:
        """The offsets expired now under KIP-211."""
        read = self.read_topics(seen)
        gone = set()
        for (group, place), entry in self.entries.items():
            since: int | None = entry.committed_at_ms
            if group == "g" and seen.protocol_type is not None:
                if seen.state is State.EMPTY:
                    since = max(empty_since, entry.committed_at_ms)
                elif seen.state is not State.STABLE or read is None or place[0] in read:
                    since = None
            if since is None:
                continue
            limit = since + retention_ms if entry.expires_at_ms is None else entry.expires_at_ms
            if now >= limit:
                gone.add((group, place))
        return gone

    def may_delete(self, seen: GroupSeen, topic: str) -> Code:
        """KIP-496: offsets may be deleted unless a member subscribes to the topic."""
        if seen.state is State.DEAD:
            return Code.GROUP_ID_NOT_FOUND
        if seen.state is State.EMPTY:
            return Code.NONE
        if seen.protocol_type != "consumer":
            return Code.NON_EMPTY_GROUP
        read = self.read_topics(seen)
        return Code.GROUP_SUBSCRIBED_TO_TOPIC if read is None or topic in read else Code.NONE

"""A consumer group on a bench: events in, effects out, immediate saves, virtual time."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.assignors import compute
from faust_assigner.coordinator.catalogue import Catalogue, Topic
from faust_assigner.coordinator.classic import ClassicGroup
from faust_assigner.coordinator.consumer import ConsumerGroup
from faust_assigner.coordinator.effects import Group
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import (
    CatalogueChanged,
    ConsumerGroupHeartbeat,
    Event,
    Saved,
    TargetComputed,
    TimersDue,
)
from faust_assigner.coordinator.records import Key, Kind, Record, Value
from faust_assigner.coordinator.restore import restore
from faust_assigner.coordinator.settings import ConsumerLimits
from faust_assigner.coordinator.states import GroupLimits

GROUP = "g"
Owned = Mapping[str, tuple[int, ...]]


def topic_id(name: str) -> bytes:
    """Return the id of a topic on the bench: its name, padded."""
    return name.encode().ljust(16, b".")


def catalogue(**partitions: int) -> Catalogue:
    """Return a catalogue of topics with these partition counts."""
    return Catalogue.of(Topic(name, topic_id(name), count) for name, count in partitions.items())


class Bench:
    """A group with a store and a catalogue that the test controls."""

    def __init__(self, limits: ConsumerLimits | None = None, **partitions: int) -> None:
        self.limits = limits if limits is not None else ConsumerLimits(assignment_interval_ms=0)
        self.classic_limits = GroupLimits(initial_rebalance_delay_ms=0)
        self.catalogue = catalogue(**(partitions or {"a": 4}))
        self.now = 1_000_000
        #: The wall clock, if it differs from ``now``.
        self.wall: int | None = None
        self.group: Group = ConsumerGroup(
            GROUP,
            self.limits,
            self.catalogue,
            self.now,
            restore_classic=ClassicGroup.restore,
            classic_limits=self.classic_limits,
        )
        self.disk: dict[Key, Value] = {}
        self.saves: list[tuple[Record, ...]] = []
        self.disk_fails = False
        self.answers_targets = True
        self.asked: list[fx.ComputeTarget] = []
        self.effects: list[fx.Effect] = []
        self._tokens = itertools.count(1)

    def step(self, event: Event) -> list[fx.Effect]:
        """Feed an event and all events that follow at once; return the effects other than saves."""
        seen: list[fx.Effect] = []
        self._feed(event, seen)
        self.effects += seen
        return seen

    def _feed(self, event: Event, seen: list[fx.Effect]) -> None:
        for effect in self.group.step(event, self.now, self.wall):
            match effect:
                case fx.SaveRecords(records, save_id):
                    self._feed(Saved(save_id, self._save(records)), seen)
                case fx.SaveGroup(record, save_id):
                    error = self._save([Record(Key(Kind.CLASSIC, GROUP), record)])
                    if save_id is not None:
                        self._feed(Saved(save_id, error), seen)
                case fx.ReplaceMachine(group):
                    self.group = group
                case fx.ComputeTarget(request_id, spec):
                    self.asked.append(effect)
                    if self.answers_targets:
                        self._feed(TargetComputed(request_id, compute(spec)), seen)
                case _:
                    seen.append(effect)

    def _save(self, records: Iterable[Record]) -> Code:
        if self.disk_fails:
            return Code.NOT_COORDINATOR
        self.saves.append(tuple(records))
        for record in self.saves[-1]:
            if record.value is None:
                self.disk.pop(record.key, None)
            else:
                self.disk[record.key] = record.value
        return Code.NONE

    def ask(self, event: Any) -> Any:
        """Feed a request; return its only reply."""
        token = next(self._tokens)
        (answer,) = [
            e for e in self.step(replace(event, token=token)) if getattr(e, "token", None) == token
        ]
        return answer

    def heartbeat(
        self, member_id: str, epoch: int, owned: Owned | None = None, **fields: Any
    ) -> fx.ConsumerHeartbeatReply:
        """Send a ConsumerGroupHeartbeat with partitions by topic name."""
        by_id = None if owned is None else {topic_id(name): parts for name, parts in owned.items()}
        answer = self.ask(ConsumerGroupHeartbeat(0, member_id, epoch, owned=by_id, **fields))
        assert isinstance(answer, fx.ConsumerHeartbeatReply)
        return answer

    def join(self, member_id: str, *names: str, **fields: Any) -> fx.ConsumerHeartbeatReply:
        """Send the first heartbeat; without names the member subscribes to "a"."""
        fields.setdefault("rebalance_timeout_ms", 60_000)
        if "subscribed_topic_regex" not in fields:
            fields.setdefault("subscribed_topic_names", names or ("a",))
        return self.heartbeat(member_id, 0, {}, **fields)

    def given(self, reply: fx.ConsumerHeartbeatReply) -> dict[str, tuple[int, ...]] | None:
        """Return the assignment of an answer, by topic name."""
        return None if reply.assignment is None else self.catalogue.names_of(reply.assignment)

    def wait(self, ms: int) -> list[fx.Effect]:
        """Advance the clock and ring timers when they are due; return the effects."""
        end, seen = self.now + ms, list[fx.Effect]()
        while (due := self.group.next_deadline_ms) is not None and due <= end:
            self.now = max(self.now, due)
            seen += self.step(TimersDue())
        self.now = end
        return seen

    def change_topics(self, **partitions: int) -> None:
        """Replace the catalogue."""
        self.catalogue = catalogue(**partitions)
        self.step(CatalogueChanged(self.catalogue))

    def restart(self) -> None:
        """Rebuild the group from its records."""
        self.group = restore(
            GROUP,
            [Record(key, value) for key, value in sorted(self.disk.items(), key=repr)],
            classic=self.classic_limits,
            consumer=self.limits,
            catalogue=self.catalogue,
            now_ms=self.now,
        )

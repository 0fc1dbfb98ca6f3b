"""Every life of a small group: all orders of joins, heartbeats, lost answers, leaves and removals.

The group is rebuilt from its records at every turn, so the search also shows that the records are
the group's whole state.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.classic import ClassicGroup
from faust_assigner.coordinator.consumer import ConsumerGroup
from faust_assigner.coordinator.consumer.book import FIRST_EPOCH
from faust_assigner.coordinator.events import ConsumerGroupHeartbeat, LeaveGroup, Leaver, Saved
from faust_assigner.coordinator.records import Key, Record, Value
from faust_assigner.coordinator.settings import ConsumerLimits
from tests.property.consumer_sim.acts import GROUP, Setting
from tests.property.consumer_sim.conversions import Conversions
from tests.property.consumer_sim.model import Model, Pair, pairs
from tests.property.consumer_sim.seen import look
from tests.property.lives import must
from tests.support.coordination.consumer_bench import catalogue, topic_id

NOW = 1_000_000
A = topic_id("a")


@dataclass(frozen=True)
class Mind:
    """A client's knowledge: its epoch (-1: no membership), its partitions, and its assignment."""

    epoch: int = -1
    uses: frozenset[Pair] = frozenset()
    told: frozenset[Pair] | None = None


@dataclass
class Node:
    """A state of the group, the clients and the model."""

    records: dict[Key, Value]
    minds: tuple[Mind, ...]
    model: Model

    @cached_property
    def group(self) -> tuple[Any, ...]:
        """A key, equal for equal states of the group and the model, whatever the clients know."""
        held = tuple(sorted((m, tuple(sorted(k.held))) for m, k in self.model.members.items()))
        return tuple(sorted((repr(k), repr(v)) for k, v in self.records.items())), held

    def seen_by(self, minds: tuple[Mind, ...]) -> Node:
        """Return the same state of the group with this knowledge of the clients."""
        node = Node(self.records, minds, self.model)
        node.group = self.group
        return node

    def key(self) -> tuple[Any, ...]:
        """Return a key, equal for equal states."""
        return self.group, self.minds


class Search:
    """Search all states breadth first, up to a number of group epochs."""

    def __init__(self, members: int, partitions: int, epochs: int) -> None:
        self.names = tuple(f"m{k + 1}" for k in range(members))
        self.epochs = epochs
        self.catalogue = catalogue(a=partitions)
        self.limits = ConsumerLimits(assignment_interval_ms=0)
        self.promises = Conversions(Setting(partitions=(("a", partitions),)))
        self._done: dict[tuple[Any, ...], tuple[Node | None, Any]] = {}

    def run(self) -> int:
        """Return the number of distinct states; raise Violation for a broken promise."""
        line = [Node({}, (Mind(),) * len(self.names), Model())]
        known = {line[0].key()}
        for node in line:
            for following in self._all(node):
                key = following.key()
                if key not in known:
                    known.add(key)
                    line.append(following)
        return len(known)

    def _all(self, node: Node) -> Iterator[Node]:
        for k, name in enumerate(self.names):
            for event, mind in self._requests(name, node.minds[k]):
                after, reply = self._answered(node, event)
                if after is None:
                    continue
                for heard in (True, False):
                    new = _hear(mind, reply) if heard else mind
                    minds = (*node.minds[:k], new, *node.minds[k + 1 :])
                    self._check_use(after, minds)
                    yield after.seen_by(minds)

    def _requests(self, name: str, mind: Mind) -> Iterator[tuple[Any, Mind]]:
        yield ConsumerGroupHeartbeat(1, name, 0, None, None, 60_000, ("a",), owned={}), Mind(0)
        if mind.epoch < 0:
            return
        yield ConsumerGroupHeartbeat(1, name, mind.epoch), mind
        if mind.told is None:
            yield ConsumerGroupHeartbeat(1, name, mind.epoch, owned=_owned(mind.uses)), mind
        else:
            # A client applies its assignment before it sends its owned partitions.
            taken_up = Mind(mind.epoch, mind.told)
            yield ConsumerGroupHeartbeat(1, name, mind.epoch, owned=_owned(mind.told)), taken_up
        yield ConsumerGroupHeartbeat(1, name, -1), Mind()
        yield LeaveGroup(1, (Leaver(name),)), mind

    def _answered(self, node: Node, event: Any) -> tuple[Node | None, Any]:
        """Return the state after the event, and the reply; the clients' knowledge changes neither."""
        if (known := (node.group, repr(event))) not in self._done:
            self._done[known] = self._do(node, event)
        return self._done[known]

    def _do(self, node: Node, event: Any) -> tuple[Node | None, Any]:
        records = [Record(key, value) for key, value in node.records.items()]
        group = ConsumerGroup(
            GROUP, self.limits, self.catalogue, NOW, restore_classic=ClassicGroup.restore
        ).restore(records)
        before = look(group)
        effects = list(group.step(event, NOW))
        if effects and isinstance(effects[0], fx.SaveRecords):
            effects[:1] = group.step(Saved(effects[0].save_id), NOW)
        replies = {e.token: e for e in effects if hasattr(e, "token")}
        after = look(group)
        assert before is not None
        assert after is not None
        if after.epoch - FIRST_EPOCH > self.epochs:
            return None, None
        self.promises.model = deepcopy(node.model)
        self.promises.model.computed_at = None
        self.promises.judge_all(event, before, after, replies, NOW, self.catalogue)  # type: ignore[arg-type]
        self.promises.always(before, after, self.catalogue, NOW)
        return Node(dict(after.records), node.minds, self.promises.model), replies[1]

    def _check_use(self, node: Node, minds: tuple[Mind, ...]) -> None:
        """No two clients known to the group use the same partition."""
        used: dict[Pair, str] = {}
        for name, mind in zip(self.names, minds, strict=True):
            if name not in node.model.members:
                continue  # a zombie: its epoch is fenced
            for pair in sorted(mind.uses):
                must(pair not in used, "B2: two use it", pair, used.get(pair), name)
                used[pair] = name


def _owned(uses: frozenset[Pair]) -> dict[bytes, tuple[int, ...]]:
    return {A: tuple(sorted(p for _, p in uses))} if uses else {}


def _hear(mind: Mind, reply: Any) -> Mind:
    if not isinstance(reply, fx.ConsumerHeartbeatReply):
        return mind
    if reply.error:
        return Mind()
    told = mind.told if reply.assignment is None else pairs(reply.assignment)
    return mind if reply.member_epoch < 0 else Mind(reply.member_epoch, mind.uses, told)

"""Holes 8, 9, 10 and 13 of an assigner: answers, streams, two owners, failed warm-ups.

Each test runs a scenario twice in virtual time: the naive variant fails, and ours does not.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from faust_assigner.service import values as codec
from faust_assigner.service.commands import Assignment, Command, Owned
from faust_assigner.service.errors import NotFound, ServiceRefused, WrongCaller, WrongPhase
from faust_assigner.service.handoff import Phase, TopicPartition
from faust_assigner.service.node import AssignerNode
from faust_assigner.service.records import Assigned, Consumer, Ended
from faust_assigner.service.serving.acks import Acks, Answer
from faust_assigner.service.serving.registry import Registry, Stream
from faust_assigner.service.store.base import Delete, KeyValue, Put
from faust_assigner.service.store.memory import MemoryStore
from tests.support.assigning.consumers import Bench, LoopClock, virtually
from tests.unit.service.stories import ALL, AT, HANDOFF, acks_of, put, store

# -- 8: answers that check neither caller nor phase --------------------------------------------------------


class _NaiveAcks(Acks):
    """Like the first assigner: read, set the phase, write; a release deletes the hand-off."""

    async def ready(self, answer: Answer) -> int:
        kv = await self.answering.store.get(self.answering.keys.handoff(answer.at))
        assert kv is not None
        handoff = replace(codec.load_handoff(kv.value), phase=Phase.READY)
        written = await self.answering.store.txn([], [Put(kv.key, codec.dump_handoff(handoff))])
        return written.revision

    async def released(self, answer: Answer, offset: int | None = None) -> int:
        written = await self.answering.store.txn(
            [], [Delete(self.answering.keys.handoff(answer.at))]
        )
        return written.revision


async def _phase(kept: MemoryStore) -> str | None:
    kv = await kept.get(ALL.handoff(AT))
    return None if kv is None else codec.load_handoff(kv.value).phase.value


@pytest.mark.parametrize(("kind", "harm"), [(Acks, False), (_NaiveAcks, True)])
@pytest.mark.parametrize(
    ("phase", "answer", "expected"),
    [
        (Phase.COMPLETE, "late ready", "Complete"),  # a second Ready reverts Complete
        (Phase.WARMING, "ready of another", "Warming"),
        (Phase.WARMING, "ready of an older one", "Warming"),
        (Phase.WARMING, "released too early", "Warming"),
        (Phase.COMPLETE, "released by another", "Complete"),
    ],
)
def test_8_an_answer_counts_only_from_the_right_one_for_this_handoff_in_its_phase(
    kind: type[Acks], harm: bool, phase: Phase, answer: str, expected: str
) -> None:
    """A repeated answer counts once."""

    async def story() -> None:
        kept = store()
        await put(kept, ALL.assignment(AT), codec.dump_assigned(Assigned(AT, "old")))
        kv = await put(kept, ALL.handoff(AT), codec.dump_handoff(replace(HANDOFF, phase=phase)))
        acks, this = acks_of(kept, kind=kind), kv.create_revision
        calls: dict[str, Callable[[], Any]] = {
            "late ready": lambda: acks.ready(Answer("new", AT, this)),
            "ready of another": lambda: acks.ready(Answer("old", AT, this)),
            "ready of an older one": lambda: acks.ready(Answer("new", AT, this - 1)),
            "released too early": lambda: acks.released(Answer("old", AT, this)),
            "released by another": lambda: acks.released(Answer("new", AT, this)),
        }
        with contextlib.suppress(ServiceRefused):
            await calls[answer]()
        assert (await _phase(kept) != expected) is harm

    virtually(story)


class _Interrupted(MemoryStore):
    """The leader deletes the hand-off between the read and the write of an answer."""

    async def get(self, key: str) -> KeyValue | None:
        kv = await super().get(key)
        if key == ALL.handoff(AT):
            await super().txn([], [Delete(key)])
        return kv


@pytest.mark.parametrize(("kind", "resurrects"), [(Acks, False), (_NaiveAcks, True)])
def test_8_an_answer_does_not_bring_back_a_handoff_that_was_deleted(
    kind: type[Acks], resurrects: bool
) -> None:
    """The naive write recreates the hand-off as ready, and the leader completes it."""

    async def story() -> None:
        kept = _Interrupted(clock=LoopClock())
        await kept.txn(
            [],
            [
                Put(ALL.assignment(AT), codec.dump_assigned(Assigned(AT, "old"))),
                Put(ALL.handoff(AT), codec.dump_handoff(HANDOFF)),
            ],
        )
        with contextlib.suppress(ServiceRefused):
            await acks_of(kept, kind=kind).ready(Answer("new", AT))
        assert bool((await kept.list("/g/handoffs/")).items) is resurrects

    virtually(story)


def test_8_what_is_refused_is_told_apart() -> None:
    """The errors differ by cause; answers of the first assigner, without an id, are accepted."""

    async def story() -> None:
        kept = store()
        acks = acks_of(kept)
        with pytest.raises(NotFound):
            await acks.ready(Answer("new", AT))
        await put(kept, ALL.assignment(AT), codec.dump_assigned(Assigned(AT, "old")))
        kv = await put(kept, ALL.handoff(AT), codec.dump_handoff(HANDOFF))
        with pytest.raises(WrongCaller):
            await acks.ready(Answer("old", AT, kv.create_revision))
        with pytest.raises(WrongPhase):
            await acks.released(Answer("old", AT, kv.create_revision))
        await acks.ready(Answer("new", AT))
        await acks.ready(Answer("new", AT, kv.create_revision))
        assert await _phase(kept) == "Ready"

    virtually(story)


# -- 9: streams ----------------------------------------------------------------------------------------------


class _NaiveRegistry(Registry):
    """Unregisters by name."""

    def remove(self, stream: Stream) -> bool:
        return self._streams.pop(stream.consumer_name, None) is not None


def _stream(
    session: str, limit: int = 100, snapshot: Callable[[], Sequence[Command]] = tuple
) -> Stream:
    async def closed(stream: Stream) -> None:
        """Do nothing."""

    return Stream(
        "c",
        session,
        limit=limit,
        lives=lambda: 1.0,
        snapshot=snapshot,
        overflowed=lambda: None,
        closed=closed,
    )


@pytest.mark.parametrize(("kind", "lost"), [(Registry, False), (_NaiveRegistry, True)])
def test_9_the_clean_up_of_an_old_stream_leaves_the_reconnected_one_alone(
    kind: type[Registry], lost: bool
) -> None:
    """The late clean-up finds the consumer registered again."""

    async def story() -> None:
        registry, old, new = kind(), _stream("1"), _stream("2")
        registry.add(old)
        registry.add(new)
        assert old.ended is Ended.REPLACED
        registry.remove(old)
        assert (registry.get("c") is None) is lost

    virtually(story)


class _NaiveStream(Stream):
    """Takes the snapshot before the stream receives changes, and drops commands on overflow."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._queue.extend((0, command) for command in self.snapshot())
        self._anew = False

    def offer(self, command: Command) -> None:
        if len(self._queue) < self.limit:
            self._queue.append((0, command))


@pytest.mark.parametrize(("kind", "complete"), [(Stream, True), (_NaiveStream, False)])
def test_9_what_happens_between_the_snapshot_and_the_registration_is_told(
    kind: type[Stream], complete: bool
) -> None:
    """The first message is built when it is read, after the stream began to receive changes."""

    async def story() -> None:
        owned: list[Owned] = []
        stream = kind(
            "c",
            "1",
            limit=100,
            lives=lambda: 1.0,
            overflowed=lambda: None,
            closed=_ignore,
            snapshot=lambda: [Assignment(tuple(owned), full=True)],
        )
        owned.append(Owned(AT, 5))  # before the registry knows the stream
        first = await anext(stream)
        assert (first == Assignment((Owned(AT, 5),), full=True)) is complete

    virtually(story)


async def _ignore(stream: Stream) -> None:
    """Do nothing."""


@pytest.mark.parametrize(("kind", "complete"), [(Stream, True), (_NaiveStream, False)])
def test_9_a_stream_that_overflows_gets_a_fresh_snapshot(
    kind: type[Stream], complete: bool
) -> None:
    """The stream loses no command."""

    async def story() -> None:
        owned: dict[TopicPartition, Owned] = {}
        stream = kind(
            "c",
            "1",
            limit=3,
            lives=lambda: 1.0,
            overflowed=lambda: None,
            closed=_ignore,
            snapshot=lambda: [Assignment(tuple(owned.values()), full=True)],
        )
        await anext(stream)
        for number in range(10):
            at = TopicPartition("t", number)
            owned[at] = Owned(at, number)
            stream.offer(Assignment((owned[at],)))
        known: set[TopicPartition] = set()
        with contextlib.suppress(TimeoutError):
            while True:
                async with asyncio.timeout(0.1):
                    command = await anext(stream)
                assert isinstance(command, Assignment)
                known |= {o.at for o in command.assigned}
        assert (known == set(owned)) is complete

    virtually(story)


# -- 10: both owners at once -------------------------------------------------------------------------------


@pytest.mark.parametrize(("strict", "both"), [(True, False), (False, True)])
def test_10_in_strict_mode_the_new_owner_starts_only_when_the_old_one_has_drained(
    strict: bool, both: bool
) -> None:
    """The new owner starts at the old owner's last offset, with a higher epoch that fences late commits."""

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 2}, strict=strict)
            old = await b.consumer(node, "a", releases=False)
            await b.settles(2)
            new = await b.consumer(node, "b")
            await asyncio.sleep(5.0)
            assert bool(old.owned.keys() & new.owned.keys()) is both
            [release] = [c for c in old.told if type(c).__name__ == "Release"]
            assert release.strict is strict
            epoch = old.owned.pop(release.at)
            await node.acks.released(Answer("a", release.at, handoff_id=release.handoff_id), 41)
            await asyncio.sleep(1.0)
            told = {owned.at: owned for c in new.of(Assignment) for owned in c.assigned}[release.at]
            assert told.epoch > epoch
            assert told.offset == (41 if strict else None)
        await kept.close()

    virtually(story)


# -- 13: a warm-up that fails ------------------------------------------------------------------------------


@pytest.mark.parametrize("says", ["failed", "ready all the same"])
def test_13_a_consumer_that_cannot_warm_says_so_and_gets_nothing(says: str) -> None:
    """The naive consumer can only report readiness, and owns the partition with an empty store."""

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 2})
            old = await b.consumer(node, "a")
            await b.settles(2)
            broken = await b.consumer(node, "b", fails=says == "failed")
            await asyncio.sleep(5.0)
            assert bool(broken.owned) is (says != "failed")
            if says == "failed":
                assert len(old.owned) == 2
                assert node._mirror.view.cooldowns
                assert b.open_handoffs() <= 1
        await kept.close()

    virtually(story)


def test_an_identity_is_not_taken_over_by_another_one() -> None:
    """Registration, deregistration and answers need the identity of the registration."""

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            node: AssignerNode = await b.node({"t": 1})
            await b.consumer(node, "a", consumer=Consumer(name="a", identity="spiffe://a"))
            with pytest.raises(WrongCaller):
                await node.register(Consumer(name="a", identity="spiffe://b"))
            with pytest.raises(WrongCaller):
                await node.deregister("a", identity="spiffe://b")
            with pytest.raises(WrongCaller):
                await node.acks.ready(Answer("a", AT, identity=""))
        await kept.close()

    virtually(story)

"""Restores beside streams: the order in which chunks flow, and standbys far behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from faust_assigner.app.recovery import consistency, following
from faust_assigner.app.recovery.actives import ActiveRestore
from faust_assigner.app.recovery.consistency import Consistency
from faust_assigner.app.recovery.following import MIN_STANDBY_GAP, StandbyFollower
from faust_assigner.app.recovery.spans import RecoverySpans

A, B, C, D = (TP("app-table-changelog", number) for number in range(4))


def told_in(order: list[TP], seen: list[Any]) -> Any:
    """Return a restore whose partitions end in ``order``; ``seen`` records the requests."""

    async def in_batches(
        tps: Any, offsets: Any, highwaters: Any, stop: Any
    ) -> AsyncGenerator[TP, None]:
        seen.append(list(tps))
        for tp in order:
            offsets[tp] = highwaters[tp]
            yield tp

    return in_batches


async def chunks_of(
    order: list[TP], left: dict[TP, int], chunks: list[frozenset[TP]]
) -> tuple[Any, Any]:
    """Return the chunks in order of arrival, and the requested partitions."""
    seen: list[Any] = []
    recovery: Any = SimpleNamespace(active_offsets={})
    batches: Any = SimpleNamespace(restore=told_in(order, seen))
    restore = ActiveRestore(recovery, None, batches)  # type: ignore[arg-type]
    found = [
        chunk
        async for chunk in restore._restored_chunks(
            list(chunks), left, dict.fromkeys(left, 9), None
        )
    ]  # type: ignore[arg-type]
    return found, seen


async def test_a_chunk_comes_once_all_of_it_is_there() -> None:
    """Chunks arrive in the order of their ends; all partitions are requested at once."""
    chunks = [frozenset({A}), frozenset({B, C}), frozenset({D})]
    found, seen = await chunks_of([B, D, A, C], {A: 5, B: 6, C: 7, D: 8}, chunks)
    assert found == [chunks[2], chunks[0], chunks[1]]
    assert seen == [[A, B, C, D]]


async def test_a_chunk_that_lacks_nothing_waits_for_nobody() -> None:
    """Its partitions are not read."""
    chunks = [frozenset({A}), frozenset({B})]
    found, seen = await chunks_of([A], {A: 5, B: 0}, chunks)
    assert found == [chunks[1], chunks[0]]
    assert seen == [[A]]


class Consumer:
    """A consumer that records seeks and resumes."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    async def seek_wait(self, offsets: dict[TP, int]) -> None:
        """Record the seek."""
        self.calls.append(("seek", dict(offsets)))

    def resume_partitions(self, tps: Any) -> None:
        """Record the resume."""
        self.calls.append(("resume", set(tps)))


@pytest.fixture
def recovery(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Standby A is near, B far behind, C far behind in a foreign store; D is followed."""
    made: Any = SimpleNamespace()
    ends = {A: 10, B: MIN_STANDBY_GAP + 10, C: MIN_STANDBY_GAP + 100}
    stores = {A: "ours", B: "ours", C: "memory"}

    async def asked(tps: Any) -> dict[TP, int]:
        return {tp: ends[tp] for tp in tps}

    async def none(tps: Any) -> dict[TP, int]:
        return dict.fromkeys(tps, 0)

    async def nothing_ahead(tables: Any, offsets: Any, ends: Any) -> frozenset[TP]:
        return frozenset()

    async def insisted(service: Any, what: str, ask: Any) -> Any:
        return await ask()

    for module in (following, consistency):
        monkeypatch.setattr(module, "retry", insisted)
    monkeypatch.setattr(following, "is_writable", lambda store: store == "ours")
    monkeypatch.setattr(
        following, "settings_of", lambda app: SimpleNamespace(batched=True, snapshots=None)
    )
    vars(made).update(
        app=SimpleNamespace(consumer=Consumer(), tracer=None),
        standby_offsets={A: None, B: 9, C: None, D: 3},
        active_offsets={},
        standby_highwaters={D: 3},
        standby_tps={A, B, C, D},
        standby_stats=dict,
        _recovery_span=None,
        tp_to_table={tp: SimpleNamespace(data=store) for tp, store in stores.items()},
    )
    made.offsets_for = lambda tp: (
        made.active_offsets if tp in made.active_offsets else made.standby_offsets
    )
    made.consistency = Consistency(made.app)
    made.consistency.ahead = nothing_ahead
    made.spans = RecoverySpans(made.app)
    made.begin_standbys = lambda: None
    made.extents, made.batches = SimpleNamespace(ends=asked, firsts=none), SimpleNamespace()
    made.standbys = StandbyFollower(made, made.extents, made.batches)
    made.standbys.followed = {D}
    return made


async def test_standbys_that_lack_much_are_read_in_batches(recovery: Any) -> None:
    """The other standbys flow meanwhile; each is followed from the end of its batches."""
    seen: list[Any] = []
    recovery.batches.restore = told_in([B], seen)
    await recovery.standbys.follow({A, B, C})
    consumer = recovery.app.consumer
    assert consumer.calls == [("seek", {A: 0, B: 10, C: 0}), ("resume", {A, C, D})]
    assert recovery.standbys.followed == {A, C, D}
    await recovery.standbys.catching_up
    assert seen == [[B]]
    assert consumer.calls[2:] == [("seek", {B: MIN_STANDBY_GAP + 10}), ("resume", {B})]
    assert recovery.standbys.followed == {A, B, C, D}


def test_who_is_nearest_to_its_end_is_first(recovery: Any) -> None:
    """Standbys in foreign stores are left out."""
    recovery.tp_to_table = dict.fromkeys((A, B, D), SimpleNamespace(data="ours")) | {
        C: SimpleNamespace(data="memory")
    }
    recovery.standby_highwaters = {A: 100, B: 100, C: 50, D: 100}
    recovery.standby_offsets = {A: 1, B: 40, C: 9, D: 40}
    assert recovery.standbys._in_order([D, C, A, B]) == [B, D, A]


async def test_a_standby_that_was_interrupted_is_not_followed(recovery: Any) -> None:
    """The next round restores it from its database's offset."""

    async def endless(*_: Any) -> AsyncGenerator[TP, None]:
        await asyncio.sleep(3600)
        yield B

    recovery.batches.restore = endless
    await recovery.standbys.follow({A, B, C})
    recovery.standbys.catching_up.cancel()
    await asyncio.wait({recovery.standbys.catching_up})
    assert recovery.standbys.followed == {A, C, D}
    assert ("resume", {B}) not in recovery.app.consumer.calls


async def test_what_is_to_be_restored_first_is_asked_for_first() -> None:
    """The order of chunks decides, not the partition number."""
    _, seen = await chunks_of([D, A, B], {A: 5, B: 6, D: 8}, [frozenset({D}), frozenset({A, B})])
    assert seen == [[D, A, B]]


async def test_a_copy_ahead_of_its_changelog_begins_before_the_first_record(recovery: Any) -> None:
    """Its file stores the new offset; the other partitions keep theirs."""
    persisted: dict[TP, int] = {}
    table = SimpleNamespace(data=SimpleNamespace(set_persisted_offset=persisted.__setitem__))
    recovery.tp_to_table = {A: table}

    async def ahead(tables: Any, offsets: Any, ends: Any) -> frozenset[TP]:
        return frozenset({A})

    recovery.consistency.ahead = ahead
    offsets = {A: 40, B: 7}
    await recovery.consistency.refuse_ahead(recovery, offsets, {A: 9, B: 9}, {A: 3, B: 0})
    assert (offsets, persisted) == ({A: 2, B: 7}, {A: 2})


async def test_copies_are_followed_from_the_first_record_or_from_their_own(recovery: Any) -> None:
    """The later offset counts; tables ahead are refused first, and each seek comes before."""
    acts, firsts, ends = list[Any](), {A: 5, B: 0, C: 8}, {A: 30, B: 40, C: 9}

    async def told(name: str, tps: Any, answer: Any) -> Any:
        acts.append((name, set(tps)))
        return answer

    async def refuse(_: Any, *given: Any) -> None:
        acts.append(("refuse", *given))
        recovery.standby_offsets[C] = 7

    async def retry(service: Any, what: str, ask: Any) -> None:
        acts.append((what, service is recovery, set(recovery.standbys.followed)))
        await ask()

    recovery.extents.firsts = lambda tps: told("firsts", tps, firsts)
    recovery.extents.ends = lambda tps: told("ends", tps, ends)
    recovery.consistency.refuse_ahead = refuse
    recovery.spans.begin_standbys = lambda *_: acts.append(
        ("trace", set(recovery.standbys.followed))
    )
    patched = pytest.MonkeyPatch()
    patched.setattr(following, "retry", retry)
    try:
        await recovery.standbys.follow({A, B, C})
    finally:
        patched.undo()
    offsets = recovery.standby_offsets
    assert acts == [
        ("firsts", {A, B, C}),
        ("ends", {A, B, C}),
        ("refuse", offsets, ends, firsts),
        ("Seek in standby changelogs", True, {D}),
        ("trace", {A, B, C, D}),
    ]
    assert offsets == {A: 4, B: 9, C: 7, D: 3}
    assert recovery.standby_highwaters == {A: 29, B: 39, C: 8, D: 3}
    assert recovery.app.consumer.calls == [("seek", {A: 5, B: 10, C: 8}), ("resume", {A, B, C, D})]
    assert recovery.standbys.catching_up is None


async def test_a_global_table_is_followed_from_the_end_of_its_restore(recovery: Any) -> None:
    """A table in memory stores no offset; its whole changelog was read a second time, and dropped."""
    recovery.active_offsets = {A: 6, C: None}
    recovery.tp_to_table[B].data = "memory"
    await recovery.standbys.follow({A, B, C})
    assert recovery.standby_offsets == {A: 6, B: 9, C: -1, D: 3}
    assert recovery.app.consumer.calls[0] == ("seek", {A: 7, B: 10, C: 0})


async def test_a_round_without_new_copies_resumes_the_others(recovery: Any) -> None:
    """The broker gets no request, and no span begins."""
    recovery.extents.firsts = recovery.extents.ends = recovery.consistency.refuse_ahead = None
    recovery.spans.begin_standbys = None
    await recovery.standbys.follow(set())
    assert recovery.app.consumer.calls == [("resume", {A, B, C, D})]
    assert (recovery.standbys.followed, recovery.standbys.catching_up) == ({D}, None)


@pytest.mark.parametrize(
    ("batched", "snapshots", "order"),
    [(True, None, True), (False, None, False), (True, "there", True), (False, "there", True)],
)
def test_copies_far_behind_are_restored_from_snapshots_or_in_batches(
    recovery: Any,
    monkeypatch: pytest.MonkeyPatch,
    batched: bool,
    snapshots: str | None,
    order: bool,
) -> None:
    """With snapshots Faust's loop replayed all records of a copy without a snapshot, and each tail."""
    found = SimpleNamespace(batched=batched, snapshots=snapshots)
    monkeypatch.setattr(following, "settings_of", lambda app: found)
    recovery.standby_highwaters = {A: 100, B: 100}
    recovery.standby_offsets[A] = 4
    assert recovery.standbys._in_order([A, B]) == ([B, A] if order else [])


async def test_a_gap_is_long_from_the_least_number_of_records_on(recovery: Any) -> None:
    """The gap is counted from the standby's last record to the changelog's last record."""
    ends = {A: MIN_STANDBY_GAP, B: 9 + MIN_STANDBY_GAP + 1, C: 0}

    async def asked(tps: Any) -> dict[TP, int]:
        return ends

    recovery.extents.ends, recovery.batches.restore = asked, told_in([], [])
    recovery.tp_to_table[A].data = "ours"
    for more in (0, 1):
        recovery.standbys.followed, recovery.standby_offsets = {D}, {A: None, B: 9, C: None, D: 3}
        ends[A], ends[B] = MIN_STANDBY_GAP - 1 + more, 9 + MIN_STANDBY_GAP + more
        await recovery.standbys.follow({A, B, C})
        assert recovery.standbys.followed == ({C, D} if more else {A, B, C, D})


async def test_several_copies_ahead_begin_each_at_its_own_first_record(recovery: Any) -> None:
    """The comparison gets the unchanged offsets and ends."""
    persisted: dict[TP, int] = {}
    table = SimpleNamespace(data=SimpleNamespace(set_persisted_offset=persisted.__setitem__))
    recovery.tp_to_table = {A: table, B: table, C: table}
    offsets, ends, asked = {A: 40, B: 50, C: 7}, {A: 9, B: 8, C: 9}, list[Any]()

    async def ahead(tables: Any, *given: Any) -> frozenset[TP]:
        asked.append(given)
        return frozenset({A, B})

    recovery.consistency.ahead = ahead
    await recovery.consistency.refuse_ahead(recovery, offsets, ends, {A: 3, B: 0, C: 1})
    assert (offsets, persisted) == ({A: 2, B: -1, C: 7}, {A: 2, B: -1})
    assert asked == [(offsets, ends)]

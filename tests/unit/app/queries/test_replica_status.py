"""The owner of a partition, the age of a copy, and the proof of its completeness."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from faust_assigner.app.queries import replica_status
from faust_assigner.app.queries.decide import Here
from faust_assigner.app.queries.freshness import Look, Marks
from faust_assigner.app.queries.replica_status import ReplicaStatus
from faust_assigner.app.tables.store import WriteBehindStore
from tests.support.waiting import PATIENCE_S

COPY = TP("log", 0)


class Following:
    """A transactional worker with a copy at offset 4; its changelog ends at 8 with markers."""

    def __init__(self) -> None:
        recovery: Any = SimpleNamespace(replays=1, buffers={}, tp_to_table={COPY: "table"})

        async def position(tp: TP) -> int:
            return 8

        self.app: Any = SimpleNamespace(
            assignor=SimpleNamespace(generation=3),
            consumer_generation_id=5,
            tables=SimpleNamespace(recovery=recovery, changelog_queue=asyncio.Queue()),
            consumer=SimpleNamespace(fetch_rounds=1, may_fetch=lambda tp: True, position=position),
        )
        self.standing = ReplicaStatus(self.app, 5.0)
        self.marks = self.standing.marks[COPY] = Marks()
        self.marks.note(Look(100.0, 8))
        self.standing._last_offset_of = lambda tp: 4  # type: ignore[method-assign]

    async def look(self) -> float | None:
        """Run a look and a fetch round; return the time at which the copy was fresh."""
        await self.standing._pass_markers([COPY])
        self.app.consumer.fetch_rounds += 1
        return self.marks.fresh_at(4)


async def test_what_was_handed_out_a_round_ago_has_been_written() -> None:
    """Only markers lie between the copy and the end."""
    it = Following()
    assert await it.look() is None
    assert await it.look() == 100.0


async def test_what_was_handed_out_in_this_round_of_the_fetcher_may_be_on_its_way() -> None:
    """The record is in the queue a fetch round later."""
    it = Following()
    for _ in range(3):
        await it.standing._pass_markers([COPY])
    assert it.marks.fresh_at(4) is None


async def test_what_was_handed_out_is_noted_by_its_first_round() -> None:
    """A look while a record is queued does not move the note to a later round."""
    it = Following()
    assert await it.look() is None
    queue = it.app.tables.changelog_queue
    queue.put_nowait("record")
    await it.standing._pass_markers([COPY])
    queue.get_nowait()
    await it.standing._pass_markers([COPY])
    assert it.marks.fresh_at(4) == 100.0


@pytest.mark.parametrize("began", ["generation", "consumer_generation_id", "recovery"])
async def test_what_was_handed_out_before_proves_nothing_of_what_began_since(began: str) -> None:
    """A rebalance or a recovery drops queued records, which the copy then lacks."""
    it = Following()
    assert await it.look() is None
    match began:
        case "generation":
            it.app.assignor.generation += 1
        case "recovery":
            it.app.tables.recovery.replays += 1
        case _:
            it.app.consumer_generation_id += 1
    assert await it.look() is None
    assert await it.look() == 100.0


@pytest.mark.parametrize("reason", ["queue", "buffer", "behind", "no position", "paused"])
async def test_records_that_may_be_on_their_way_prove_nothing(reason: str) -> None:
    """A record may be queued, buffered, at the broker, or of a paused partition."""
    it = Following()
    recovery, consumer = it.app.tables.recovery, it.app.consumer
    if reason == "queue":
        it.app.tables.changelog_queue.put_nowait("record")
    elif reason == "buffer":
        recovery.buffers = {"table": ["record"]}
    elif reason == "paused":
        consumer.may_fetch = lambda tp: False
    else:

        async def position(tp: TP) -> int | None:
            return 7 if reason == "behind" else None

        consumer.position = position
    assert [await it.look() for _ in range(3)] == [None] * 3


# -- owners, and the known state of a copy


class Table:
    """A table with a copy at offset 4, in files or in memory."""

    is_global = False

    def __init__(self, *, in_files: bool = True) -> None:
        self.data = Files() if in_files else SimpleNamespace(_dbs={0: {b"offset": b"4"}})
        if in_files:
            self.data.table = self


class Files(WriteBehindStore):
    """A store with a database of partition 0."""

    offset_key = b"offset"  # type: ignore[assignment]

    def __init__(self) -> None:
        self._dbs: Any = {0: {b"offset": b"4"}}


class Knowing:
    """A worker with a partition; ``role`` is its role in the assignment."""

    def __init__(self, role: str = "standby", *, in_files: bool = True) -> None:
        self.role, self.restored, self.sure, self.owner = role, True, True, "http://w/"
        self.table = Table(in_files=in_files)
        self.ends, self.asked = {COPY: 9}, list[Any]()
        assignor = SimpleNamespace(
            is_active=lambda tp: self.role == "active",
            is_standby=lambda tp: self.role == "standby",
            owner_of=self._owner_of,
        )
        self.recovery = SimpleNamespace(
            is_restored=lambda tp: self.restored,
            in_recovery=False,
            buffers={},
            flush_buffers=lambda: self.table.data._dbs[0].update({b"offset": b"6"}),
            standby_tps={COPY},
        )
        self.leaders: dict[TP, int] = {}
        cluster = SimpleNamespace(leader_for_partition=lambda tp: self.leaders.get(tp, 7))
        client = SimpleNamespace(
            end_offsets="end_offsets", _client=SimpleNamespace(cluster=cluster)
        )
        thread = SimpleNamespace(_ensure_consumer=lambda: client, call_thread=self._ask)
        self.app: Any = SimpleNamespace(
            assignor=assignor,
            in_transaction=False,
            conf=SimpleNamespace(canonical_url="http://w"),
            tables=SimpleNamespace(_changelogs={"log": self.table}, recovery=self.recovery),
            consumer=SimpleNamespace(
                is_surely_member=lambda: self.sure, between_generations=False, _thread=thread
            ),
        )
        self.standing = ReplicaStatus(self.app, 5.0)

    def _owner_of(self, tp: TP) -> str:
        if not self.owner:
            raise KeyError(tp)
        return self.owner

    async def _ask(self, question: str, tps: list[TP]) -> dict[TP, int]:
        self.asked.append((question, tps))
        return self.ends


@pytest.mark.parametrize("reason", [None, "copy", "restoring", "unsure"])
def test_rows_are_this_workers_once_restored_and_while_it_is_surely_a_member(
    reason: str | None,
) -> None:
    """For an owner no further condition counts."""
    it = Knowing("standby" if reason == "copy" else "active")
    it.restored, it.sure = reason != "restoring", reason != "unsure"
    assert it.standing.is_owner(COPY) == (reason is None)
    assert it.standing.here(COPY).is_owner == (reason is None)


@pytest.mark.parametrize(
    ("owner", "is_owner"), [("http://w/", True), ("http://v", False), ("", True)]
)
def test_a_global_table_is_its_writers(owner: str, is_owner: bool) -> None:
    """Every worker has all rows; without a known writer each worker counts as owner."""
    it = Knowing("active")
    it.table.is_global, it.owner = True, owner
    assert it.standing.is_owner(COPY) == is_owner


@pytest.mark.parametrize("reason", ["memory", "closed", "neither", "no offset"])
async def test_what_is_no_copy_is_not_known(reason: str) -> None:
    """A copy in memory has no known offset."""
    it = Knowing("none" if reason == "neither" else "standby", in_files=reason != "memory")
    if reason == "closed":
        it.table.data._dbs.clear()
    elif reason == "no offset":
        it.table.data._dbs[0].clear()
    it.standing.marks[COPY] = Marks()
    it.standing.marks[COPY].note(Look(1.0, 5))
    assert it.standing.here(COPY).lag is None


@pytest.mark.parametrize("reason", [None, "recovery", "between generations", "nothing"])
def test_what_was_read_counts_once_it_is_written(reason: str | None) -> None:
    """The status flushes the buffers, except during a recovery."""
    it = Knowing()
    it.recovery.buffers = {} if reason == "nothing" else {it.table: ["record"]}
    it.recovery.in_recovery = reason == "recovery"
    it.app.consumer.between_generations = reason == "between generations"
    it.standing.marks[COPY] = Marks()
    it.standing.marks[COPY].note(Look(1.0, 9))
    assert it.standing.here(COPY).lag == (2 if reason is None else 4)


async def test_a_look_asks_the_broker_for_all_copies_at_once() -> None:
    """A former copy is dropped and not asked for."""
    it = Knowing()
    await it.standing.request_ends()
    assert it.asked == [("end_offsets", [COPY])]
    assert it.standing.marks[COPY].looks[-1].end == 9
    it.role = "none"
    await it.standing.request_ends()
    assert len(it.asked) == 1
    assert it.standing.marks == {}


async def test_a_copy_is_as_old_as_the_request_whose_end_it_has_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Records may arrive between request and answer, so only the request's time counts."""
    it, now = Knowing(), 100.0
    monkeypatch.setattr(replica_status, "monotonic", lambda: now)
    asked = it._ask

    async def slow(question: str, tps: list[TP]) -> dict[TP, int]:
        nonlocal now
        now = 103.0
        return await asked(question, tps)

    it.app.consumer._thread.call_thread = slow
    await it.standing.request_ends()
    assert it.standing.here(COPY) == Here(lag=4, age_s=None), "it was never seen to catch up"
    it.table.data._dbs[0][b"offset"] = b"8"
    now = 110.0
    assert it.standing.here(COPY) == Here(lag=0, age_s=10.0)


@pytest.mark.parametrize(
    ("bound_s", "sleeps"), [(0.0, []), (0.2, [0.1] * 2), (1.0, [0.25] * 2), (60.0, [0.5] * 2)]
)
async def test_copies_are_looked_at_four_times_within_the_bound(
    bound_s: float, sleeps: list[float]
) -> None:
    """The looks are 0.1 to 0.5 s apart and continue after a failed look."""
    it, slept = Knowing(), list[float]()
    it.standing.bound_s = bound_s

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def look() -> None:
        if len(slept) == 2:
            it.standing._stopped.set()
        raise OSError("no broker")

    it.standing.sleep, it.standing.request_ends = sleep, look  # type: ignore[method-assign]
    await asyncio.wait_for(ReplicaStatus._watch.fun(it.standing), PATIENCE_S)
    assert slept == sleeps


async def test_the_mark_of_a_copy_that_becomes_the_owner_stays() -> None:
    """The worker answers as a copy until it has restored the partition."""
    it = Knowing()
    await it.standing.request_ends()
    it.role = "active"
    await it.standing.request_ends()
    assert COPY in it.standing.marks
    assert len(it.asked) == 1


async def test_a_copy_that_leaves_while_the_broker_is_asked_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The revoked copy has no mark; the look still covers the other copies."""
    it, passed = Knowing(), list[Any]()
    stays = TP("log", 1)
    it.recovery.standby_tps, it.app.in_transaction = {COPY, stays}, True
    it.app.assignor.is_standby = lambda tp: tp == stays or not it.asked
    it.ends[stays] = 7
    it.app.assignor.generation = it.app.consumer_generation_id = 3
    it.recovery.replays = 1

    async def position(tp: TP) -> int:
        passed.append(tp)
        return 0

    it.app.consumer.fetch_rounds, it.app.consumer.position = 1, position
    it.app.consumer.may_fetch = lambda tp: True
    await it.standing.request_ends()
    assert passed == [stays]
    assert it.standing.marks.keys() == {stays}


async def test_two_copies_are_known_each_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A single request covers both; without an end a copy keeps its mark, and its age grows."""
    it, now, other = Knowing(), 100.0, TP("log", 1)
    monkeypatch.setattr(replica_status, "monotonic", lambda: now)
    it.table.data._dbs[1] = {b"offset": b"20"}
    it.recovery.standby_tps = {other, COPY}
    it.ends = {COPY: 9, other: 21}
    await it.standing.request_ends()
    assert it.asked == [("end_offsets", [COPY, other])]
    assert it.standing.here(COPY) == Here(lag=4, age_s=None)
    assert it.standing.here(other) == Here(lag=0, age_s=0.0)
    now, it.ends = 104.0, {COPY: 5}
    await it.standing.request_ends()
    assert it.standing.here(COPY) == Here(lag=0, age_s=0.0)
    assert it.standing.here(other) == Here(lag=0, age_s=4.0)
    assert it.standing.here(TP("log", 2)) == Here()


async def test_a_changelog_without_a_leader_holds_up_no_other_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A request waits until each of its partitions has a leader; without any leader none is sent."""
    it, now, other = Knowing(), 100.0, TP("log", 1)
    monkeypatch.setattr(replica_status, "monotonic", lambda: now)
    it.table.data._dbs[1] = {b"offset": b"6"}
    it.ends, it.recovery.standby_tps = {COPY: 9, other: 7}, {COPY, other}
    await it.standing.request_ends()
    now, it.leaders = 104.0, {COPY: -1}
    await it.standing.request_ends()
    assert it.asked == [("end_offsets", [COPY, other]), ("end_offsets", [other])]
    assert it.standing.here(other) == Here(lag=0, age_s=0.0)
    assert len(it.standing.marks[COPY].looks) == 1
    it.leaders[other] = -1
    await it.standing.request_ends()
    assert len(it.asked) == 2


async def test_a_copy_that_is_not_looked_up_yet_is_not_known() -> None:
    """Neither files without a mark nor a mark without files count."""
    it = Knowing()
    assert it.standing.here(COPY) == Here()
    it.standing.marks[TP("log", 1)] = Marks()
    assert it.standing.here(TP("log", 1)) == Here()


async def test_markers_are_passed_for_each_copy_by_itself() -> None:
    """A lagging copy does not affect the other copy; a later end starts over."""
    it, other = Following(), TP("log", 1)
    it.app.tables.recovery.tp_to_table[other] = "table"
    marks = it.standing.marks[other] = Marks()
    marks.note(Look(100.0, 9))
    for _ in range(2):
        await it.standing._pass_markers([COPY, other])
        it.app.consumer.fetch_rounds += 1
    assert (it.marks.fresh_at(4), marks.fresh_at(4)) == (100.0, None)
    it.marks.note(Look(105.0, 11))
    await it.standing._pass_markers([COPY, other])
    assert (it.marks.fresh_at(4), it.marks.lag(4)) == (100.0, 3)


async def test_what_was_handed_out_to_a_copy_that_was_closed_proves_nothing() -> None:
    """The copy reopens from its files; a later fetch round may prove the records."""
    it = Following()
    assert await it.look() is None
    for applied in (None, 4):
        it.standing._last_offset_of = lambda tp, applied=applied: applied  # type: ignore[method-assign]
        await it.standing._pass_markers([COPY])
    assert it.marks.fresh_at(4) is None
    it.app.consumer.fetch_rounds += 1
    assert await it.look() == 100.0


async def test_zero_is_an_offset_an_end_and_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offset 0, an empty log and clock time 0 are valid values."""
    it, now, empty = Knowing(), 0.0, TP("log", 1)
    monkeypatch.setattr(replica_status, "monotonic", lambda: now)
    it.table.data._dbs = {0: {b"offset": b"0"}, 1: {b"offset": b"0"}}
    it.recovery.standby_tps = {COPY, empty}
    it.ends = {COPY: 1, empty: 0}
    await it.standing.request_ends()
    now = 4.0
    assert it.standing.here(COPY) == Here(lag=0, age_s=4.0)
    assert it.standing.marks[empty].looks == [Look(0.0, 0)]


async def test_each_look_is_kept_until_the_copy_has_reached_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A copy that never reaches the end still has an age."""
    it, now = Knowing(), 100.0
    monkeypatch.setattr(replica_status, "monotonic", lambda: now)
    for end in (5, 9, 12):
        it.ends = {COPY: end}
        await it.standing.request_ends()
        now += 1.0
    now = 110.0
    assert it.standing.here(COPY) == Here(lag=7, age_s=10.0)
    it.table.data._dbs[0][b"offset"] = b"8"
    assert it.standing.here(COPY) == Here(lag=3, age_s=9.0)


async def test_all_copies_that_left_are_forgotten_and_no_other() -> None:
    """The order does not matter; a copy that this worker now owns stays."""
    it = Knowing()
    tps = [TP("log", number) for number in range(5)]
    for tp in tps:
        it.standing.marks[tp] = Marks()
    it.app.assignor.is_standby = lambda tp: tp.partition == 1
    it.app.assignor.is_active = lambda tp: tp.partition == 3
    it.recovery.standby_tps = set()
    await it.standing.request_ends()
    assert sorted(it.standing.marks) == [tps[1], tps[3]]


async def test_markers_are_passed_to_the_newest_end_by_a_copy_of_one_record() -> None:
    """A position at an older end proves no newer end."""
    it = Following()
    it.standing._last_offset_of = lambda tp: 0  # type: ignore[method-assign]
    it.marks.note(Look(105.0, 11))
    for _ in range(2):
        await it.look()
    assert it.marks.fresh_at(0) is None

    async def position(tp: TP) -> int:
        return 11

    it.app.consumer.position = position
    for _ in range(2):
        await it.look()
    assert it.marks.fresh_at(0) == 105.0


async def test_a_copy_that_has_passed_markers_passes_the_next_ones_as_well() -> None:
    """Each end needs its own round of the fetcher."""
    it = Following()
    assert [await it.look() for _ in range(2)] == [None, 100.0]

    async def position(tp: TP) -> int:
        return 11

    it.app.consumer.position = position
    it.marks.note(Look(105.0, 11))
    found = [await it.look() for _ in range(3)]
    assert found == [100.0, 105.0, 105.0]
    assert it.marks.lag(4) == 0


@pytest.mark.parametrize(("role", "known"), [("active", True), ("standby", True), ("none", False)])
def test_a_former_standby_is_a_copy_until_it_is_restored(
    monkeypatch: pytest.MonkeyPatch, role: str, known: bool
) -> None:
    """Its rows have an age as before; a partition that left has none."""
    monkeypatch.setattr(replica_status, "monotonic", lambda: 107.0)
    it = Knowing(role)
    it.restored = False
    it.standing.marks[COPY] = Marks()
    for look in (Look(100.0, 5), Look(103.0, 9)):
        it.standing.marks[COPY].note(look)
    assert it.standing.here(COPY) == (Here(lag=4, age_s=7.0) if known else Here())

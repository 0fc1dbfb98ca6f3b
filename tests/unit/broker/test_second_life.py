"""The restored state after a start, and late events: transactions, timers, machines, ranges."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from faust_assigner.broker import embedded, internal_topics
from faust_assigner.broker.embedded import EmbeddedBroker
from faust_assigner.broker.groups.timers import GroupTimers
from faust_assigner.broker.settings import Settings
from faust_assigner.broker.storage import clean_writes, cleaning
from faust_assigner.broker.storage.cleaning import CleaningRules, cleanable
from faust_assigner.broker.storage.losses import unreadable
from faust_assigner.broker.storage.records import parse_batch
from faust_assigner.broker.storage.rocks_store import FEW_KEYS, RocksStore
from faust_assigner.broker.storage.store import MemoryStore, StoreFailed
from faust_assigner.broker.transactions.transaction_store import (
    dump_transaction,
    load_transactions,
    transaction_key,
)
from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import Event, Saved, TimersDue
from faust_assigner.coordinator.records import Key, Kind, Record, TargetEpoch
from faust_assigner.coordinator.transactions import State, Transaction
from tests.support.asking import ask
from tests.support.clients.raw_client import batch
from tests.support.hall import Hall, in_hall
from tests.support.logs import newest_time, open_log
from tests.unit.broker.cleaned import TOPIC, write
from tests.unit.broker.test_groups import Desk
from tests.unit.broker.test_log_life import append
from tests.unit.broker.test_topics import catalogue

DELETE_TOPICS, FIND_COORDINATOR = 20, 10


@pytest.mark.parametrize(
    "value",
    [
        Transaction(
            "tx-ü", 7, 3, 60_000, State.ONGOING, 2, 5,
            frozenset({(b"t" * 16, 1), (b"u" * 16, 0)}), frozenset({"g", "h"}), 1_000, 2_000, True,
        ),
        Transaction("x", 8, 0, 1, is_bumped=False),
    ],
)  # fmt: skip
def test_a_transactional_id_survives_its_bytes(value: Transaction) -> None:
    """Each field is read back; all fields of the first id differ from their defaults."""
    store = MemoryStore()
    store.write([(transaction_key(value.transactional_id), dump_transaction(value))])
    assert list(load_transactions(store)) == [value]
    usual = {f.name for f in dataclasses.fields(value) if getattr(value, f.name) == f.default}
    assert not usual or value.transactional_id == "x"


# -- timers and machines ---------------------------------------------------------------------------


async def test_all_timers_that_were_set_before_the_start_run_after_it() -> None:
    """Each has its own time, the last time of a key counts, and a stop ends all timers."""
    now, fired = [0], list[tuple[Any, int]]()
    timers = GroupTimers(lambda: now[0], lambda key: fired.append((key, now[0])))
    for key, when in (("g", 50), (("transaction", "x"), 20), ("h", 70), ("g", 30), ("i", 99)):
        timers.set(key, when)
    timers.start(asyncio.get_running_loop())
    timers.fire_until(70, lambda when: now.__setitem__(0, when))
    assert fired == [(("transaction", "x"), 20), ("g", 30), ("h", 70)]
    assert now == [70]
    timers.close()
    timers.fire_until(200, lambda when: now.__setitem__(0, when))
    assert len(fired) == 3


async def test_a_timer_waits_as_long_as_is_left_by_its_own_clock() -> None:
    """The clock is at 1,000; an earlier time is due immediately."""
    waits: list[float] = []
    loop: Any = asyncio.get_running_loop()

    class Noting:
        def call_later(self, delay: float, *call: Any) -> Any:
            waits.append(delay)
            return loop.call_later(3_600, int)

    timers = GroupTimers(lambda: 1_000, lambda key: None)
    timers.start(Noting())  # type: ignore[arg-type]
    for key, when in (("g", 1_250), ("h", 900), ("i", 1_000)):
        timers.set(key, when)
    assert waits == [0.25, 0.0, 0.0]
    timers.close()


class Scripted:
    """A group's machine that answers each event with the next effects."""

    def __init__(self, *effects: tuple[fx.Effect, ...]) -> None:
        self.group_id, self.state_name, self.next_deadline_ms = "g", "Stable", None
        self.is_unproven = self.is_unused = False
        self.seen: list[Event] = []
        self._effects = list(effects)

    def step(self, event: Event, now_ms: int, wall_ms: int) -> tuple[fx.Effect, ...]:
        """Note the event."""
        self.seen.append(event)
        return self._effects.pop(0) if self._effects else ()


@pytest.mark.parametrize(("fails", "code"), [(False, Code.NONE), (True, Code.NOT_COORDINATOR)])
def test_the_outcome_of_a_write_goes_to_the_machine_that_took_over(fails: bool, code: Code) -> None:
    """The outcome precedes the old machine's next effect; a replaced machine gets no event."""
    store = MemoryStore()
    desk = Desk(store)
    fresh = Scripted()
    record = Record(Key(Kind.TARGET_EPOCH, "g"), TargetEpoch(3))
    steps = (fx.ReplaceMachine(fresh), fx.SaveRecords((record,), 5), fx.Happened("done", "m", ""))  # type: ignore[arg-type]
    old = Scripted(steps)
    desk.service._groups["g"] = old  # type: ignore[assignment]
    if fails:

        def full(*arguments: object, **more: object) -> None:
            raise StoreFailed("no space")

        store.write = full  # type: ignore[method-assign]
    desk.service.tick("g")
    assert old.seen == [TimersDue()]
    assert fresh.seen == [Saved(5, code)]
    assert desk.service.get("g") is fresh  # type: ignore[comparison-overlap]
    assert len(list(store.scan(b"m"))) == (0 if fails else 1)
    assert desk.counters["group_done"] == 1


# -- logs ------------------------------------------------------------------------------------------


def test_the_newest_record_is_found_at_its_exact_time() -> None:
    """An older record does not count, and of two equal times the first record counts."""
    log = open_log(MemoryStore(), TOPIC, 0)
    for time in (8, 9, 10, 3, 10):
        append(log, timestamp=time)
    assert newest_time(log) == (2, 10)
    log.trim(3)
    assert newest_time(log) == (4, 10)
    log.trim(5)
    assert newest_time(log) is None


@pytest.mark.parametrize("count", [FEW_KEYS, FEW_KEYS + 1, 40])
def test_a_long_trim_takes_the_last_of_its_batches_along_and_leaves_the_next(
    count: int, tmp_path: Path
) -> None:
    """The trim deletes single keys or a range, on the disk and after a restart."""
    store = RocksStore(tmp_path)
    log = open_log(store, TOPIC, 0)
    for _ in range(count + 2):
        append(log)
    log.trim(count)
    for kind in (b"b", b"x"):
        keys = [int.from_bytes(key[-8:], "big") for key, _ in store.scan(kind)]
        assert keys == [count, count + 1]
    again = open_log(store, TOPIC, 0)
    assert (again.start_offset, list(again.index.bases)) == (count, [count, count + 1])
    store.close()


def test_a_broken_batch_of_several_records_is_named_with_all_its_offsets() -> None:
    """A batch is missing, a second has a wrong size; offsets between batches belong to no batch."""
    store = MemoryStore()
    log = open_log(store, TOPIC, 0)
    for count in (3, 1, 4, 2):
        append(log, count)
    store.write([(log.batch_key(4), batch())], [log.batch_key(0)])
    assert list(unreadable(log, 1_000, lambda: None)) == [(0, 3), (4, 8)]


# -- compaction ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chunk", "steps"), [(1, [1, 2, 3, 4]), (139, [2, 4]), (140, [2, 4]), (141, [3, 4])]
)
def test_a_step_of_a_pass_reads_batches_until_it_has_its_bytes(
    chunk: int, steps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No batch after the end of the pass is read; each batch has 70 bytes."""
    monkeypatch.setattr(cleaning, "CHUNK_BYTES", chunk)
    log = open_log(MemoryStore(), TOPIC, 0)
    for key in b"abcde":
        write(log, (bytes([key]), b"v"))
    assert set(log.index.sizes) == {70}
    found = cleanable(log, CleaningRules(), 0)
    assert found is not None
    work = clean_writes.begin(log, found, CleaningRules(), 0, 100)
    reached = []
    for _ in steps:
        is_more = work.map_some()
        reached.append(work.position if is_more else found.stop)
    assert reached == steps
    chunks = []
    while (decided := work.clean_some()) is not None:
        chunks.append((len(decided.outcomes), decided.next_base))
    assert chunks == [(b - a, b) for a, b in zip([0, *steps], steps, strict=False)]


def test_a_pass_whose_next_batch_is_gone_changes_nothing() -> None:
    """The log was emptied between the decision about a chunk and the read of the next batch."""
    store = MemoryStore()
    log = open_log(store, TOPIC, 0)
    for key in b"aabz":
        write(log, (bytes([key]), b"v"))
    found = cleanable(log, CleaningRules(), 0)
    assert found is not None
    work = clean_writes.begin(log, found, CleaningRules(), 0, 100)
    while work.map_some():
        pass
    store.write((), [log.index_key(3)])
    chunk = work.clean_some()
    assert chunk is not None
    assert (chunk.outcomes, chunk.next_base) == ((), -1)
    assert clean_writes.apply(log, chunk) == 0
    assert list(log.index.bases) == [0, 1, 2, 3]


# -- topics and the embedded broker ------------------------------------------------------------------


def test_a_topic_that_a_deletion_names_twice_is_kept() -> None:
    """The name has a single answer; the remaining topics are deleted."""

    async def story(hall: Hall) -> Any:
        for name in "tuv":
            hall.node.catalogue.create(name, 1, {})
        answer = await ask(hall, DELETE_TOPICS, 5, topic_names=("t", "u", "t"))
        errors = [(one.name, int(one.error_code)) for one in answer.responses]
        return errors, [topic.name for topic in hall.node.catalogue]

    assert in_hall(story) == ([("t", 42), ("u", 0)], ["t", "v"])


def test_a_coordinator_is_found_though_its_internal_topic_cannot_be_stored() -> None:
    """Groups do not depend on the topic; the next lookup tries again."""

    async def story(hall: Hall) -> Any:
        write_ = hall.node.store.write

        def full(*arguments: object, **more: object) -> None:
            raise StoreFailed("no space")

        found = []
        for now in (full, write_):
            hall.node.store.write = now  # type: ignore[method-assign]
            answer = await ask(hall, FIND_COORDINATOR, 4, key_type=1, coordinator_keys=("x", "x"))
            (one,) = answer.coordinators
            found.append((int(one.error_code), one.node_id, len(hall.node.catalogue)))
        return found

    assert in_hall(story) == [(0, 1, 0), (0, 1, 1)]


def test_each_internal_topic_has_its_own_number_of_partitions_and_its_own_configs() -> None:
    """An existing topic is not changed."""
    topics = catalogue()
    settings = Settings.parse(
        {"offsets.topic.num.partitions": 3, "transaction.state.log.num.partitions": 5}
    )
    topics.create("__consumer_offsets", 1, {"retention.ms": "5"})
    for name in ("__consumer_offsets", "__transaction_state"):
        internal_topics.ensure(topics, settings, name)
    compacted = {"cleanup.policy": "compact", "segment.bytes": "104857600"}
    states = compacted | {"compression.type": "uncompressed", "min.insync.replicas": "1"}
    assert {one.name: (len(one.partitions), one.configs) for one in topics} == {
        "__consumer_offsets": (1, {"retention.ms": "5"}),
        "__transaction_state": (5, states),
    }
    assert internal_topics.partitions(settings, "__consumer_offsets") == 3


@pytest.mark.parametrize("error", [OSError("taken"), KeyError("a bug"), asyncio.CancelledError()])
async def test_an_embedded_broker_that_does_not_start_has_no_node_and_no_lock(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cause does not matter; a second start of the same object is possible."""

    async def failing(self: object, host: str, port: int) -> int:
        raise error

    broker = EmbeddedBroker(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(embedded.BrokerServer, "start", failing)
        with pytest.raises(type(error)):
            await broker.start()
    with pytest.raises(RuntimeError, match="not running"):
        _ = broker.node
    RocksStore(tmp_path).close()
    data = batch()
    assert parse_batch(data).size == len(data)

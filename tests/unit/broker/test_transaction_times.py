"""Transactions and time: timeouts, early ticks, idle ids, and the counters of both."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from faust_assigner.broker.storage.store import StoreFailed
from faust_assigner.broker.transactions import service
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.transactions import State
from faust_assigner.coordinator.transactions.events import EndTransaction, InitProducer
from tests.unit.broker.test_transactions import TIMEOUT, Bench


def alarms_of(bench: Bench) -> list[tuple[str, int]]:
    """Return a list of the alarms that are set from now on."""
    found: list[tuple[str, int]] = []
    bench.node.transactions._set_timer = lambda name, when: found.append((name, when))
    return found


def test_a_tick_before_the_timeout_sets_the_alarm_again_and_ends_nothing() -> None:
    """The timers may fire early; the transaction has its whole time."""
    bench = Bench()
    bench.begin()
    alarms = alarms_of(bench)
    bench.now += TIMEOUT - 1
    bench.node.transactions.tick("tx")
    assert bench.of("tx").state is State.ONGOING
    assert alarms == [("tx", bench.now + 1)]
    assert bench.node.counters["transactions_timed_out"] == 0
    bench.node.close()


def test_a_transaction_beyond_its_timeout_is_aborted_and_counted_once() -> None:
    """The abort has a new epoch, which fences the producer; a later tick has no effect."""
    bench = Bench()
    bench.begin()
    epoch = bench.of("tx").epoch
    bench.now += TIMEOUT
    for _ in range(2):
        bench.node.transactions.tick("tx")
    counters = bench.node.counters
    assert (bench.of("tx").state, bench.of("tx").epoch) == (State.COMPLETE_ABORT, epoch + 1)
    assert counters["transactions_timed_out"] == counters["transactions_aborted"] == 1
    assert counters["transactions_committed"] == 0
    bench.node.close()


def test_a_transactions_time_begins_with_its_first_partition_and_not_with_later_ones() -> None:
    """A producer that adds partitions for ever would otherwise block its readers for ever."""
    bench = Bench()
    bench.begin()
    began = bench.now
    bench.now += TIMEOUT // 2
    bench.reopen("tx", [1], "another group")
    assert bench.of("tx").aborts_at_ms == began + TIMEOUT
    bench.node.close()


def test_the_alarm_is_in_the_time_of_the_timers() -> None:
    """The wall clock gives the remaining time, the timers' clock the time of the alarm."""
    bench = Bench()
    bench.node.transactions._timer = lambda: 50
    alarms = alarms_of(bench)
    bench.begin()
    assert set(alarms) == {("tx", 50 + TIMEOUT)}
    bench.now += 2 * TIMEOUT  # as after a sleep of the machine: due immediately, never in the past
    bench.node.transactions._set_alarm(bench.of("tx"))
    assert alarms[-1] == ("tx", 50)
    bench.node.close()


def test_an_id_expires_exactly_after_its_time_without_use() -> None:
    """The forgotten id is counted, deleted from disk, and unknown to its producer."""
    bench = Bench()
    bench.begin()
    assert bench.end(commits=True) is Code.NONE
    known = bench.of("tx")
    key = service.transaction_key("tx")
    assert bench.node.store.get(key) is not None
    bench.now += 999
    assert sum(bench.node.transactions.expire(1_000)) == 0
    bench.now += 1
    assert sum(bench.node.transactions.expire(1_000)) == 1
    assert bench.node.counters["transactional_ids_forgotten"] == 1
    assert bench.node.transactions.unflushed_partitions("tx") == ()
    assert bench.node.store.get(key) is None
    late = EndTransaction(known.producer_id, known.epoch, True)
    assert bench.node.transactions.ask("tx", late) is Code.INVALID_PRODUCER_ID_MAPPING
    bench.node.close()


def test_an_id_counts_from_its_last_use_and_not_from_the_begin_of_its_transaction() -> None:
    """A long transaction has just ended, and a new producer has begun none; an open one stays."""
    bench = Bench()
    bench.begin()
    bench.begin("open")
    bench.now += TIMEOUT // 2
    assert bench.end(commits=True) is Code.NONE
    assert bench.node.transactions.ask("new", InitProducer(TIMEOUT, 78)) is Code.NONE
    bench.now += 999
    assert list(bench.node.transactions.expire(1_000)) == [0, 0, 0]
    bench.now += 1
    assert sorted(bench.node.transactions.expire(1_000)) == [0, 1, 1]
    assert [one.transactional_id for one in bench.node.transactions] == ["open"]
    bench.node.close()


def test_room_is_made_by_the_longest_idle_id_also_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of the last use decides, neither the name nor the order in the store."""
    monkeypatch.setattr(service, "MAX_TRANSACTIONAL_IDS", 2)
    bench = Bench(tmp_path)
    for name in ("a", "b"):
        bench.begin(name)
        bench.now += 10
    for name in ("b", "a"):
        assert bench.end(name, commits=True) is Code.NONE
        bench.now += 10
    bench.node.close()
    again = Bench(tmp_path)
    again.now = bench.now
    assert again.node.transactions.ask("c", InitProducer(TIMEOUT, 78)) is Code.NONE
    assert {one.transactional_id for one in again.node.transactions} == {"a", "c"}
    again.node.close()


def test_an_id_in_use_goes_behind_the_idle_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a restart, too, each change of an id is a use."""
    monkeypatch.setattr(service, "MAX_TRANSACTIONAL_IDS", 2)
    bench = Bench()
    for name in ("a", "b", "a"):
        assert bench.node.transactions.ask(name, InitProducer(TIMEOUT, 1)) is Code.NONE
    assert {one.transactional_id for one in bench.node.transactions} == {"a", "b"}
    assert bench.node.transactions.ask("c", InitProducer(TIMEOUT, 2)) is Code.NONE
    assert {one.transactional_id for one in bench.node.transactions} == {"a", "c"}
    bench.node.close()


def test_the_end_of_a_transaction_wakes_the_readers_of_its_partitions() -> None:
    """A read_committed reader waits for the stable offset, which only the marker moves."""
    bench = Bench()
    bench.begin()
    bench.write()
    woken: list[int] = []
    bench.log.waiters[1] = lambda: woken.append(bench.log.stable_offset)
    assert bench.log.stable_offset == 0
    assert bench.end(commits=True) is Code.NONE
    assert woken == [2], "woken after the marker counts"
    bench.node.close()


def test_a_producer_with_an_open_transaction_is_not_forgotten_as_idle() -> None:
    """Its next batch must follow its last batch, however long the producer was silent."""
    bench = Bench()
    bench.begin()
    bench.write(sequence=0)
    bench.log.expire_producers(bench.now + 1)
    assert len(bench.log.producers) == 1
    assert bench.end(commits=True) is Code.NONE
    bench.log.expire_producers(bench.now + 1)
    assert len(bench.log.producers) == 0
    bench.node.close()


def test_partitions_of_an_end_are_flushed_until_it_is_said() -> None:
    """A failed wait for the disk is repeated by the client's next EndTxn."""
    bench = Bench()
    bench.begin(partitions=(0, 1))
    assert bench.end(commits=True) is Code.NONE
    ended = [log.number for _, log in bench.node.transactions.unflushed_partitions("tx")]
    assert ended == [0, 1]
    bench.node.transactions.flushed("tx")
    assert bench.node.transactions.unflushed_partitions("tx") == ()
    bench.node.close()


def test_no_room_is_made_where_the_store_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the limit would not hold on a full disk."""
    monkeypatch.setattr(service, "MAX_TRANSACTIONAL_IDS", 1)
    bench = Bench()
    ask = bench.node.transactions.ask
    assert ask("a", InitProducer(TIMEOUT, 1)) is Code.NONE
    write = bench.node.store.write

    def full(puts: Iterable[tuple[bytes, bytes]], *more: Any, **named: Any) -> None:
        if not list(puts):
            raise StoreFailed("no space")
        write(puts, *more, **named)

    bench.node.store.write = full  # type: ignore[method-assign]
    assert ask("b", InitProducer(TIMEOUT, 2)) is Code.COORDINATOR_NOT_AVAILABLE
    assert [one.transactional_id for one in bench.node.transactions] == ["a"]
    bench.node.close()

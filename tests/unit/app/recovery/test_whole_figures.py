"""Figures, lines and limits of a recovery at their edges: exact times, offset 0, an empty log."""

from __future__ import annotations

import asyncio
import logging
import ssl
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP
from yarl import URL

from faust_assigner.app.recovery import callbacks
from faust_assigner.app.recovery.callbacks import RecoverCallbacks
from faust_assigner.app.recovery.progress import BETWEEN_S, SILENT_S, WINDOW_S, Figures, Progress
from faust_assigner.app.recovery.restore_settings import connection_of
from faust_assigner.app.recovery.restore_throttle import MOST_RECORDS, RestoreThrottle
from tests.unit.app.recovery.test_callbacks import Table, everything
from tests.unit.app.recovery.test_progress import Clock
from tests.unit.app.recovery.test_replay_end import A, B, C, D, Recovery, event, made

__all__ = ["made"]


def test_a_sample_counts_until_the_next_is_as_old_as_the_window() -> None:
    """At exactly the window's age of the next sample, the rate is that since the next sample."""
    clock = Clock()
    progress = Progress(clock)
    progress.begin({"a": (0, 1_000)})
    clock.now += 3.0
    progress.move("a", 300)
    progress.figures()
    clock.now += WINDOW_S - 0.5
    progress.move("a", 310)
    assert progress.figures().records_per_s == pytest.approx(310 / (WINDOW_S + 2.5))
    clock.now += 0.5
    progress.move("a", 320)
    assert progress.figures() == Figures(1, 680, 20 / WINDOW_S, 680 / (20 / WINDOW_S))


def test_a_slow_restore_has_an_end_too() -> None:
    """One record in four seconds; the second restore of a worker starts from new samples."""
    clock = Clock()
    progress = Progress(clock)
    progress.begin({"a": (5, 9), "b": (3, 3)})
    clock.now += 4.0
    progress.move("a", 6)
    progress.move("a", 2)
    progress.move("b", 4)
    assert progress.figures() == Figures(1, 3, 0.25, 12.0)
    assert progress.line() == (
        "Restoring 1 partitions: 3 records remain, 0 records/s, the end is in about 12 s"
    )
    progress.move("a", 99)
    assert (progress.passed, progress.total, progress.next_offset("a")) == (4, 4, 9)
    assert progress.figures().remaining == 0
    clock.now += BETWEEN_S
    assert progress.line() == (
        "Restoring 1 partitions: 0 records remain, 0 records/s, the end is in about 0 s"
    )
    progress.finish("a")
    assert (progress.is_idle, progress.next_offset("a")) == (True, 0)
    clock.now += 7.0
    assert progress.end() == "Restored 4 records in 16.0 s, 0 records/s"
    assert progress.end() is None
    progress.begin({"c": (10, 30), "d": (4, 8)})
    clock.now += SILENT_S
    progress.move("c", 20)
    assert progress.line() == (
        "Restoring 2 partitions: 14 records remain, 5 records/s, the end is in about 3 s"
    )
    assert (progress.passed, progress.total) == (10, 14)
    progress.give_up()
    assert progress.figures() == Figures(0, 0, 5.0, 0.0)
    assert progress.next_offset("c") == 0


async def test_a_callback_leaves_nothing_behind_and_a_stop_ends_it_as_cancelled(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker may restore its tables many times; the warning counts from the wait's begin."""
    now = iter([100.0, 163.0])
    monkeypatch.setattr(callbacks, "monotonic", lambda: next(now))
    monkeypatch.setattr(callbacks, "SAY_EVERY_S", 0.001)
    first, second, due = Table("sums"), Table("counts"), RecoverCallbacks()
    due.owe([first, second])
    due.begin(everything)
    tasks = list(due._tasks)
    waiting = asyncio.ensure_future(due.over())
    while not caplog.messages:
        await asyncio.sleep(0.001)
    assert caplog.messages == [
        "Callbacks of on_recover of tables ['counts', 'sums'] have run for 63 s; partitions that "
        "this worker takes over are processed when they have returned"
    ]
    waiting.cancel()
    await asyncio.wait({waiting})
    first.may_end.set()
    while due.running != {second}:
        await asyncio.sleep(0)
    assert len(due._tasks) == 1
    await due.stop()
    assert due._tasks == set()
    assert sorted(task.cancelled() for task in tasks) == [False, True]
    assert len(caplog.messages) == 1


async def test_the_first_record_of_a_log_is_applied_once(made: Recovery) -> None:
    """Offset 0 is an offset: a table that has it skips the record."""
    made.active_tps.add(C)
    for _ in range(2):
        await made._take(event(C, 0))
    assert made.table.seen == [0]
    made.standby_offsets[B] = 0
    await made._take(event(B, 0))
    assert made.table.seen == [0]


async def test_an_empty_log_is_fetched_at_its_first_position(made: Recovery) -> None:
    """Its last offset is -1, and the position 0 is after that."""
    consumer: Any = made.app.consumer
    consumer.positions = {A: 7, C: 0, D: 1}
    assert await made._end._is_fetched(C, -1) is True
    assert await made._end._is_fetched(C, 0) is False
    assert await made._end._is_fetched(D, 0) is True
    assert await made._end._is_fetched(A, 7) is False


@pytest.mark.parametrize("bad", [A, B])
def test_only_the_partition_s_own_bad_records_make_its_line_an_error(
    made: Recovery, bad: TP, caplog: pytest.LogCaptureFixture
) -> None:
    """Without bad records the gap holds transaction markers, which are normal."""
    caplog.set_level(logging.INFO)
    made.unreadable.counts[bad] = 2
    made._end._report(A, 4, 6)
    (record,) = caplog.records
    assert record.levelname == ("ERROR" if bad == A else "INFO")
    assert record.getMessage() == (
        f"Changelog {A}: there is no readable record between offset 4 and the end 6; it counts "
        "as restored"
    )


def test_an_error_of_the_traced_block_is_raised(made: Recovery) -> None:
    """Also a cancellation; the recovery has no span after the block."""
    made.app.tracer = None
    for error in (KeyError("x"), asyncio.CancelledError()):
        with pytest.raises(type(error)), made.spans.actives(None):
            raise error
        assert made.spans._actives is None


def test_a_connection_has_the_app_s_certificates() -> None:
    """All brokers of the URL and the app's own SSL context are used."""
    context = ssl.create_default_context()
    conf = SimpleNamespace(
        broker_client_id="w7",
        broker_request_timeout=4.25,
        broker_credentials=None,
        ssl_context=context,
    )
    transport = SimpleNamespace(url=[URL("kafka://a:9093"), URL("kafka://b")], default_port=9092)
    assert connection_of(SimpleNamespace(conf=conf, transport=transport)) == {
        "bootstrap_servers": ["a:9093", "b:9092"],
        "client_id": "w7-restore",
        "request_timeout_ms": 4250,
        "security_protocol": "SSL",
        "ssl_context": context,
    }


def test_a_turn_that_costs_nothing_is_followed_by_the_largest_growth() -> None:
    """The clock's resolution may hide the cost; an empty turn measures none."""
    spent, live, now = 0.0, 0, 0.0
    pace = RestoreThrottle(0.25, lambda: live, clock=lambda: spent, now=lambda: now)
    assert (pace.begin(), pace.end(0), pace.begin()) == (100, 0.0, 100)
    assert (pace.end(100), pace.begin(), pace.end(400)) == (0.0, 400, 0.0)
    found = []
    for _ in range(4):
        found.append(pace.begin())
        pace.end(found[-1])
    assert found == [1_600, 6_400, MOST_RECORDS, MOST_RECORDS]
    live = 1
    pace.begin()
    spent += 0.5
    assert pace.end(7) == 1.5, "three parts of four are the streams'"
    now += 1.0
    pace.begin()
    spent += 0.5
    assert pace.end(7) == 0.0, "the streams are idle again"

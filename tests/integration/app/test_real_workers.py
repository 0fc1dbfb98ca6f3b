"""Real Faust worker processes on our assignor, on both brokers; ``make real-workers`` is the long form."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from faust_assigner.testing.broker import broker_process
from faust_assigner.testing.kafka import KafkaServer
from tests.support.workers.load import Load, judge
from tests.support.workers.measure import State, measure, minimum_moves, standstill
from tests.support.workers.script import play


def keep_every_promise(bootstrap: str, folder: Path, *events: str) -> None:
    """One run of ours: no lost order, wrong row or cold takeover; minimal moves, no idle worker."""
    outcome = play(
        bootstrap, "ours", folder, app_id=f"real-{time.time_ns()}", events=events, orders_per_s=2.0
    )
    assert outcome.violations == []
    assert [event.name for event in outcome.events] == list(events)


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(240)
def test_a_killed_worker_is_replaced_warm_and_comes_back_to_its_files(tmp_path: Path) -> None:
    """On the embedded broker: SIGKILL, then a restart with the files on disk."""
    with broker_process() as broker:
        keep_every_promise(broker.bootstrap, tmp_path, "SIGKILL", "restart with files")


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.timeout(240)
def test_leaving_loses_nothing_on_kafka(kafka: KafkaServer, tmp_path: Path) -> None:
    """On Apache Kafka: SIGTERM, its partitions go to their standbys."""
    keep_every_promise(kafka.bootstrap, tmp_path, "SIGTERM")


def model_of(sent: int) -> Load:
    """The model of one partition and one customer with ``sent`` orders of amount 5."""
    load = Load("nowhere", "model", partitions=1)
    load.sent, load.amounts = [sent], {"anna": [5] * sent}
    return load


def test_an_offset_nobody_processed_is_a_lost_order() -> None:
    """An offset processed twice is a repeat."""
    verdict = judge(
        model_of(3),
        [(0.0, 0, 0), (0.1, 0, 0), (0.2, 0, 2)],
        {"anna": {"numbers": 3, "amount": 15, "missing": 0}},
    )
    assert (verdict.orders, verdict.lost, verdict.repeated, verdict.wrong_rows) == (3, 1, 1, ())


@pytest.mark.parametrize(
    "row",
    [
        {"numbers": 3, "amount": 10, "missing": 1},
        {"numbers": 2, "amount": 10, "missing": 0},
        {"numbers": 3, "amount": 14, "missing": 0},
        {},
    ],
)
def test_a_row_that_differs_from_the_model_is_wrong(row: dict[str, int]) -> None:
    """The row has a gap, lacks the tail, has another sum, or is missing."""
    done = [(0.0, 0, offset) for offset in range(3)]
    assert len(judge(model_of(3), done, {"anna": row}).wrong_rows) == 1


def test_a_takeover_without_state_or_files_is_cold() -> None:
    """Of the two moved partitions one goes to its standby."""
    before = State(
        {"a": frozenset({0, 1}), "b": frozenset({2})},
        {"a": frozenset({0, 1}), "b": frozenset({0, 2})},
    )
    after = State({"b": frozenset({0, 1, 2})}, {"b": frozenset({0, 1, 2})})
    gaps = {0: 1.0, 1: 9.0, 2: 0.1}
    event = measure("SIGKILL", before, after, {}, {1: 50}, gaps)
    assert (event.moves, event.minimum_moves, event.cold, event.replayed) == (2, 2, 1, 50)
    assert (event.moved_gaps, event.kept_gaps) == ((1.0, 9.0), (0.1,))
    assert measure("restart", before, after, {"b": frozenset({1})}, {}, gaps).cold == 0


def test_an_orphan_may_go_to_a_holder_first() -> None:
    """A partition of ``a`` goes to its standby ``b``; the move to ``c`` is warm by then."""
    before = State(
        {"a": frozenset({0}), "b": frozenset({1, 2}), "c": frozenset({3})},
        {"a": frozenset({0, 1}), "b": frozenset({0, 1, 2}), "c": frozenset({3})},
    )
    taken = State(
        {"b": frozenset({0, 1, 2}), "c": frozenset({3})},
        {"b": frozenset({0, 1, 2}), "c": frozenset({1, 3})},
    )
    after = State({"b": frozenset({0, 2}), "c": frozenset({1, 3})}, {})
    gaps = dict.fromkeys(range(4), 0.0)
    event = measure("SIGKILL", before, after, {}, {}, gaps, [taken, after])
    assert (event.moves, event.minimum_moves, event.cold) == (2, 2, 0)
    astray = State({"b": frozenset({0, 1}), "c": frozenset({2, 3})}, {})
    event = measure("SIGKILL", before, astray, {}, {}, gaps, [taken, after, astray])
    assert (event.moves, event.minimum_moves, event.cold) == (2, 2, 1)
    needless = State({"b": frozenset({1, 3}), "c": frozenset({0, 2})}, {})
    event = measure("SIGKILL", before, needless, {}, {}, gaps, [taken, needless])
    assert (event.moves, event.minimum_moves, event.cold) == (4, 2, 3)


def test_minimum_moves_and_standstill() -> None:
    """A newcomer to 4+4 gets two of eight; a gap is the longest time between two orders."""
    four = {"a": frozenset(range(4)), "b": frozenset(range(4, 8))}
    grown = {"a": frozenset({0, 1, 2}), "b": frozenset({4, 5, 6}), "c": frozenset({3, 7})}
    assert minimum_moves(four, grown) == 2
    assert standstill([(1.0, 0, 1), (1.5, 0, 2), (4.0, 0, 3)], 2, 1.0, 5.0) == {0: 2.5, 1: 4.0}

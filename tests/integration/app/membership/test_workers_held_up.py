"""Workers beside a fault: a slow record or callback, a blocked loop, a shared instance id, false claims."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from faust_assigner.testing.broker import broker_process
from faust_assigner.testing.waiting import wait_until
from tests.support.coordination.lying_member import lying_member
from tests.support.workers.fleet import Fleet
from tests.support.workers.load import Load, judge

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.timeout(240)]

PARTITIONS = 8


@contextlib.contextmanager
def workers(folder: Path, *names: str, **more: Any) -> Iterator[tuple[Fleet, Load]]:
    """Workers at rest on the embedded broker, under load, with a session of six seconds."""
    app_id = f"held-{time.time_ns()}"
    with broker_process() as broker:
        fleet = Fleet(app_id, broker.bootstrap, PARTITIONS, folder, session_s=6.0, **more)
        load = Load(broker.bootstrap, app_id, PARTITIONS, orders_per_s=5.0)
        try:
            load.prepare(1)
            for name in names:
                fleet.start(name)
            load.start()
            fleet.settle(workers=len(names), quiet_s=0.5)
            yield fleet, load
        finally:
            load.stop()
            fleet.stop()


def pauses(fleet: Fleet, since: float) -> dict[int, float]:
    """Return partition -> its longest time without a finished order, in seconds."""
    times: dict[int, list[float]] = {number: [since] for number in range(PARTITIONS)}
    for at, number, _ in fleet.orders():
        if at > since:
            times[number].append(at)
    return {
        number: max(later - at for at, later in zip(found, [*found[1:], time.time()], strict=True))
        for number, found in times.items()
    }


def test_a_record_that_outlasts_the_session_stops_no_other_workers_partitions(
    tmp_path: Path,
) -> None:
    """A join waits for the slow record; the partitions that two other workers keep flow meanwhile."""
    with workers(tmp_path, "w1", "w2", "w3") as (fleet, load):
        since, generation = time.time(), fleet.generation()
        # A worker with three partitions, two are a share among four, gives its last one away.
        giver, *others = sorted(fleet.living(), key=lambda worker: -len(worker.actives))
        owned, slow = {worker.name: worker.actives for worker in others}, max(giver.actives)
        fleet.hold_up(giver.name, "sleep", 20.0, slow)
        fleet.start("w4")
        fleet.settle(workers=4, after=generation, quiet_s=0.5)
        assert slow not in fleet.workers[giver.name].actives  # else no round waited for the record
        kept = {
            number
            for worker in fleet.living()
            for number in worker.actives & owned.get(worker.name, frozenset())
        }
        longest = pauses(fleet, since)
        load.stop()
        fleet.drain(sum(load.sent))
        verdict = judge(load, fleet.orders(), fleet.totals())
    assert len(kept) >= 3
    assert max(longest.values()) > 15.0  # the slow record's own partition
    assert max(longest[number] for number in kept) < 9.0, longest
    assert (verdict.lost, verdict.repeated, verdict.wrong_rows) == (0, 0, ())


def test_a_worker_that_was_blocked_for_too_long_takes_up_its_work_again(tmp_path: Path) -> None:
    """``broker_max_poll_interval`` makes it leave the group; the log says so, and it joins again."""
    with workers(tmp_path, "w1", settings={"broker_max_poll_interval": 4.0}) as (fleet, load):
        generation = fleet.generation()
        fleet.hold_up("w1", "block", 12.0, 0)
        fleet.settle(workers=1, after=generation, quiet_s=0.5)
        load.stop()
        fleet.drain(sum(load.sent))
        verdict = judge(load, fleet.orders(), fleet.totals())
        said = (tmp_path / "w1" / "log").read_text()
    assert (verdict.lost, verdict.wrong_rows) == (0, ())
    assert "broker_max_poll_interval" in said


def test_the_worker_whose_instance_id_another_takes_ends_and_no_result_counts_twice(
    tmp_path: Path,
) -> None:
    """Stock's two workers replaced each other for ever, and a sum of 996 became 2,685."""
    with workers(tmp_path, "w1", instance="till-1") as (fleet, load):
        fleet.start("w2")
        first = fleet.workers["w1"]
        wait_until(lambda: first.process.poll() is not None, "the end of the replaced worker")
        fleet.settle(workers=1, quiet_s=0.5)  # in the same generation
        load.stop()
        fleet.drain(sum(load.sent))
        verdict = judge(load, fleet.orders(), fleet.totals())
        said = (tmp_path / "w1" / "log").read_text()
        assert fleet.workers["w2"].alive
    assert first.process.returncode != 0
    assert "till-1" in said
    assert "FENCED_INSTANCE_ID" in said
    assert (verdict.lost, verdict.wrong_rows) == (0, ())


def test_a_member_with_false_claims_stops_no_honest_workers_partitions(tmp_path: Path) -> None:
    """Each of its joins costs one round, and the leader's log names it."""
    with workers(tmp_path, "w1", "w2", "w3") as (fleet, load):
        names = ("orders", "customers", "rates-changelog", "totals-changelog")
        topics = {f"{fleet.app_id}-{name}": PARTITIONS for name in names}
        with lying_member(fleet.bootstrap, fleet.app_id, topics, every_s=4.0) as claims:
            wait_until(lambda: claims.joins > 1, "its second join")
            owned = {worker.name: worker.actives for worker in fleet.living()}
            since, generation, joins = time.time(), fleet.generation(), claims.joins
            wait_until(lambda: claims.joins >= joins + 4, "four more joins")
            kept = {n for one in fleet.living() for n in one.actives & owned[one.name]}
            longest = pauses(fleet, since)
            rounds = fleet.generation() - generation
        generation = fleet.generation()
        fleet.settle(workers=3, after=generation, quiet_s=0.5)
        load.stop()
        fleet.drain(sum(load.sent))
        verdict = judge(load, fleet.orders(), fleet.totals())
        logs = [(tmp_path / name / "log").read_text() for name in fleet.workers]
    assert len(kept) >= 5
    assert rounds <= 6  # a second round after each join would make eight
    assert max(longest[number] for number in kept) < 20.0, longest
    assert any("are refused: it claims generation 2000000" in log for log in logs)
    assert (verdict.lost, verdict.wrong_rows) == (0, ())


def wrong_sets(fleet: Fleet, load: Load) -> dict[str, tuple[int, int]]:
    """Return customer -> the elements of its set in the workers' memory, and the orders sent."""
    found: dict[str, list[int]] = {}
    for answer in fleet.answers("sets", 20.0):
        assert isinstance(answer, dict)
        found |= answer
    return {
        customer: (len(found.get(customer, ())), len(amounts))
        for customer, amounts in sorted(load.amounts.items())
        if found.get(customer) != list(range(len(amounts)))
    }


def test_a_join_during_a_slow_callback_of_on_recover_loses_no_element_of_a_set(
    tmp_path: Path,
) -> None:
    """Stock cancels the callback, changes empty sets, and writes their few elements to the file."""
    with workers(tmp_path, "w1", windows=True, replicas=0) as (fleet, load):
        load.stop()
        fleet.drain(sum(load.sent))
        fleet.terminate("w1")
        recovering = tmp_path / "w1" / "recovering"
        recovering.touch()
        told = len(fleet.workers["w1"].told)

        def rows(kind: str) -> list[Any]:
            fleet.living()
            return [row for row in fleet.workers["w1"].told[told:] if row["kind"] == kind]

        fleet.start("w1")
        wait_until(lambda: bool(rows("callback")), "the callback of on_recover")
        rounds = len(rows("assigned"))
        fleet.start("w2")
        wait_until(lambda: len(rows("assigned")) > rounds, "a round during the callback")
        load.start()
        wait_until(lambda: bool(fleet.living()[1].orders), "an order on the new worker")
        recovering.unlink()
        fleet.settle(workers=2, quiet_s=0.5)
        load.stop()
        fleet.drain(sum(load.sent))
        assert [row["what"] for row in rows("callback")] == ["begin", "end"]
        assert wrong_sets(fleet, load) == {}
        fleet.terminate("w1", "w2")
        fleet.start("w1")  # with the sets in its files
        load.start()
        fleet.settle(workers=1, quiet_s=0.5)
        load.stop()
        fleet.drain(sum(load.sent))
        assert wrong_sets(fleet, load) == {}

"""Short runs of the soak, the journals and the joins with fixed seeds; make targets run them long."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.soak.joins import joins_of, run
from tests.soak.journals import Life, world_of
from tests.soak.quiesce import balance
from tests.soak.run import Soak
from tests.soak.schedule import DEPLOYS, Fault

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def play(broker: str, guarantee: str, seed: int, folder: Path, *kinds: tuple[str, ...]) -> None:
    """Play two rounds of faults of these kinds; compare with the model after the second round."""
    lines: list[str] = []
    soak = Soak(broker, guarantee, seed, folder, workers=3, tell=lines.append)
    assert soak.run(2) is None, "\n".join(lines)
    assert [row.kept for row in soak.rows] == [True, True]
    assert tuple(tuple(fault.kind for fault in row.faults) for row in soak.rows) == kinds
    [balance] = [row.balance for row in soak.rows if row.balance is not None]
    assert balance.orders > 100


@pytest.mark.processes
def test_two_rounds_on_the_embedded_broker_keep_every_promise(tmp_path: Path) -> None:
    """The broker is killed; then a worker with damaged files returns and soon leaves."""
    play("embedded", "at_least_once", 5, tmp_path, ("kill broker",), ("damage", "leave"))


@pytest.mark.kafka
def test_two_rounds_of_exactly_once_keep_every_promise(tmp_path: Path) -> None:
    """On Apache Kafka: a worker is killed; then a worker is frozen while another worker leaves."""
    play("kafka", "exactly_once", 6, tmp_path, ("kill",), ("freeze", "leave"))


@pytest.mark.processes
def test_no_partition_has_two_owners_while_events_overlap(tmp_path: Path) -> None:
    """Twelve events on the embedded broker, among them a freeze of the broker."""
    lines: list[str] = []
    played = Life("embedded", "at_least_once", 2, tmp_path, lines.append).run(12)
    assert (played.faults, played.clean) == ((), 12), "\n".join(lines)
    assert played.overlapping >= 10
    assert played.closed > 40  # 81 in the 39 s of an idle machine; a slower run has more orders
    assert any("freeze broker" in line for line in lines)


@pytest.mark.processes
def test_a_static_worker_under_load_shares_with_one_that_joins(tmp_path: Path) -> None:
    """The second join of the seed, beside two busy processes; the app has a ``group_by``."""
    join = joins_of(1, 2)[1]
    assert join.static
    assert run("embedded", [join], 1, 2, 170.0, tmp_path) == 0


@pytest.mark.processes
def test_static_workers_take_on_a_topic_and_leave_it_within_their_sessions(tmp_path: Path) -> None:
    """A worker that returns in time keeps its partitions, whatever its version subscribes to."""
    with world_of("embedded", "at_least_once", 1, tmp_path) as world:
        world.fleet.session_s = 60.0
        world.fleet.settings = {**world.fleet.settings, "broker_request_timeout": 90.0}
        for name in ("worker-1", "worker-2"):
            world.start(name)
        for load, _ in world.flows():
            load.start()
        world.rest()
        for kind in DEPLOYS:
            world.begin(Fault(kind, "", 0.0, 0.0, signal.SIGTERM, 0))
            world.rest()
            assert balance(world, exactly_once=False, strangers={}).faults == ()
            for load, _ in world.flows():
                load.start()
        assert world.exits == 0

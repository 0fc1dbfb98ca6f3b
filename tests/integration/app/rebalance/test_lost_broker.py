"""The broker, which coordinates the group, is lost in a cooperative round; work resumes by itself."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.soak.journals import WORKERS, two_owners, world_of
from tests.soak.quiesce import balance
from tests.soak.schedule import Fault
from tests.soak.world import World
from tests.support.workers.places import BETWEEN, JOINED, LETTING_GO, MODULE, PLACES, RESTORING

#: The kind of loss and its seconds: less than a session, or more.
LOSSES = {"stop broker": 1.0, "kill broker": 8.0, "freeze broker": 9.0}
HELD_S = 60.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def lose(world: World, place: str, how: str) -> None:
    """A worker joins; when a worker holds at ``place``, lose and restore the broker; end the join."""
    hold = world.fleet.folder / "hold" / place
    join = Fault("join", WORKERS[-1], 0.0, 0.0, signal.SIGTERM, 0)
    loss = Fault(how, "", 0.0, LOSSES[how], signal.SIGTERM, 0)
    hold.touch()
    for worker in world.fleet.workers.values():
        worker.held_at.clear()
    world.begin(join)
    deadline = time.monotonic() + HELD_S
    while not any(worker.held_at for worker in world.fleet.workers.values()):
        assert time.monotonic() < deadline, f"nobody was held at {place!r}"
        world.tick()
    world.begin(loss)
    hold.unlink()
    until = time.monotonic() + loss.for_s
    while time.monotonic() < until:
        world.tick()
    world.end(loss)
    world.rest()
    world.end(join)
    world.rest()


def play(broker: str, guarantee: str, losses: Iterable[tuple[str, str]], folder: Path) -> None:
    """Play each loss; compare the journals with each other, tables and outputs with the model."""
    (folder / "hold").mkdir()
    with world_of(broker, guarantee, 2, folder, module=MODULE) as world:
        for name in WORKERS[:-1]:
            world.start(name)
        world.load.start()
        world.rest()
        for place, how in losses:
            lose(world, place, how)
        found = balance(world, exactly_once=guarantee == "exactly_once", strangers={})
        assert (found.faults, two_owners(world)) == ((), [])


@pytest.mark.processes
@pytest.mark.parametrize("place", PLACES)
def test_the_embedded_broker_is_lost_amid_a_round(place: str, tmp_path: Path) -> None:
    """The broker is restarted, killed or frozen: no partition has two owners, no record is lost."""
    play("embedded", "at_least_once", [(place, how) for how in LOSSES], tmp_path)


@pytest.mark.kafka
def test_kafka_is_lost_amid_a_round(tmp_path: Path) -> None:
    """On Apache Kafka under exactly_once, no record is lost and no record is there twice."""
    play(
        "kafka",
        "exactly_once",
        [
            (JOINED, "stop broker"),
            (BETWEEN, "kill broker"),
            (LETTING_GO, "kill broker"),
            (RESTORING, "freeze broker"),
        ],
        tmp_path,
    )

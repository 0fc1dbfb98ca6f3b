"""The long life of an uneven fleet under every arm: figures, rounds and the policy's input.

``python -m tests.unit.simulation.test_record`` writes the two files anew after an intended change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from faust_assigner import Member
from faust_assigner.pipeline.simulate.policies import load
from faust_assigner.simulation.fleet import (
    Arm,
    Costs,
    Event,
    Kind,
    PlanLike,
    Scenario,
    TaskGroup,
    Worker,
)
from faust_assigner.simulation.simulator import Rebalance, simulate

OURS = load("ours")
COSTS = Costs(
    session_timeout_s=45.0,
    rebalance_pause_s=0.5,
    warm_takeover_s=1.25,
    replay_records_per_s=2_000.0,
    acceptable_recovery_lag=1_500.0,
    acceptable_from_nothing=300.0,
    follow_up_s=4.0,
)


def life() -> Scenario:
    """Return two tables and a stateless topic, with every kind of event."""
    groups = (TaskGroup("t", 6, "t-log"), TaskGroup("s", 3), TaskGroup("u", 4, "u-log"))
    tasks = np.arange(13)
    events = (
        Event(10.0, Kind.JOIN, "w3"),
        Event(40.0, Kind.RESTART, "w0", 6.0),
        Event(90.0, Kind.BOUNCE, "w1", 20.0),
        Event(100.0, Kind.JOIN, "w4"),
        Event(200.0, Kind.CRASH, "w2"),
        Event(300.0, Kind.RESTART, "w3", 70.0),
        Event(400.0, Kind.LEAVE, "w4"),
        Event(500.0, Kind.BOUNCE, "w0", 60.0),
    )
    return Scenario(
        7,
        3,
        "shop",
        "2026-01-01",
        tuple(
            Worker(f"w{n}", rack_id="ab"[n % 2], capacity=(1.0, 2.0, 1.5)[n % 3]) for n in range(5)
        ),
        ("w0", "w1", "w2"),
        groups,
        rates=np.array([2.0 + task * 7 % 5 for task in tasks]),
        records=np.where((tasks < 6) | (tasks > 8), 1_000.0 + 700 * (tasks * 3 % 7), 0.0),
        events=events,
        learned_weights=np.array([0.5 + task * 5 % 4 for task in tasks]),
    )


ARMS = {
    arm.label + f" {arm.replicas}" + " no files" * (not arm.claims_files): arm
    for arm in (
        Arm("ours", 0, eager=True),
        Arm("ours", 1, eager=True),
        Arm("ours", 1, eager=True, claims_files=False),
        Arm("ours", 1, cooperative=True),
        Arm("ours", 2, cooperative=True, static=True),
        Arm("ours", 1, cooperative=True, weighted=True),
        Arm("ours", 0, static=True, weighted=True, eager=True),
    )
}


def played(name: str) -> str:
    """Return an arm's figures, and its rounds as ``at:moved/cold``."""
    trace: list[Rebalance] = []
    found = simulate(life(), ARMS[name], OURS, costs=COSTS, trace=trace)
    figures = " ".join(f"{figure:.6g}" for figure in found)
    return f"{figures} | " + " ".join(f"{one.at_s:g}:{one.moved}/{one.cold_moves}" for one in trace)


HERE = Path(__file__).parent


def costs() -> list[str]:
    """Return a line per arm: moves, loads, downtimes, restored records and rounds."""
    return [f"{name}: {played(name)}" for name in ARMS]


def asked() -> list[tuple[Sequence[Member], Mapping[str, int], dict[str, Any]]]:
    """Return the policy's input in every round of the life."""
    found: list[tuple[Sequence[Member], Mapping[str, int], dict[str, Any]]] = []

    def watching(members: Sequence[Member], partitions: Mapping[str, int], **more: Any) -> PlanLike:
        found.append((members, partitions, more))
        return OURS(members, partitions, **more)

    simulate(life(), Arm("mine", 1, cooperative=True, weighted=True), watching, costs=COSTS)
    return found


def told() -> list[str]:
    """Return the members of every round: claims, files, awaited copies and positions."""
    return [line for n, (members, _, _) in enumerate(asked()) for line in said(n, members)]


def said(number: int, members: Sequence[Member]) -> Iterator[str]:
    """Yield a round's members in lines."""
    yield f"round {number}"
    for one in members:
        head = f"{one.member_id} {one.generation} {one.rack_id} {one.capacity}"
        sides = (one.actives, one.standbys, one.awaited)
        claims = "; ".join(
            ", ".join(f"{topic} {np.asarray(numbers).tolist()}" for topic, numbers in side.items())
            for side in sides
        )
        at = {
            log: np.asarray(offsets[1]).tolist() for log, offsets in (one.positions or {}).items()
        }
        yield f"  {head}: {claims}; at {at}"


FILES = {"costs.txt": costs, "told.txt": told}


@pytest.mark.parametrize("name", FILES)
def test_a_life_is_what_its_record_says(name: str) -> None:
    """The records have the costs under every arm, and the members' input to a policy."""
    assert FILES[name]() == (HERE / name).read_text(encoding="utf-8").splitlines()


def test_a_policy_is_told_the_topics_the_weights_and_the_limits_in_every_round() -> None:
    """The values are those of the scenario and its costs."""
    for _, partitions, more in asked():
        assert partitions == {"t": 6, "t-log": 6, "s": 3, "u": 4, "u-log": 4}
        assert (more["replicas"], more["changelogs"]) == (1, ("t-log", "u-log"))
        assert more["weights"] == life().weights
        policy = more["warmups"]
        assert (policy.acceptable_recovery_lag, policy.acceptable_from_nothing) == (1_500, 300)


if __name__ == "__main__":
    for each, lines in FILES.items():
        (HERE / each).write_text("\n".join([*lines(), ""]), encoding="utf-8")

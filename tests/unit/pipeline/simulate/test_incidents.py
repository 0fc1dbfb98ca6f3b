"""A generated scenario with scripted draws: its groups, its loads and each kind of incident."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from faust_assigner.pipeline.simulate.scenarios import Shape, generate
from faust_assigner.simulation.fleet import Event, Kind, Scenario, TaskGroup, Worker

ODDS = ("deploy", "crash", "bounce", "join", "leave", "scale_out", "lose_rack")


class Draw:
    """A random source with scripted integers and choices; other numbers are the lowest."""

    def __init__(self, wholes: Sequence[int], incidents: Sequence[str]) -> None:
        self.wholes, self.incidents = list(wholes), list(incidents)
        self.bounds: list[tuple[float, ...]] = []
        self.chances: list[list[float]] = []

    def integers(self, low: int, high: int | None = None) -> int:
        """Return the script's next integer."""
        low, high = (0, low) if high is None else (low, high)
        found = self.wholes.pop(0)
        assert low <= found < high, (low, found, high)
        return found

    def uniform(self, low: float, high: float) -> float:
        """Return the lower bound."""
        self.bounds.append((round(float(low), 3), round(float(high), 3)))
        return low

    def choice(self, of: Any, size: int | None = None, **more: Any) -> Any:
        """Return the first cuts, the next incident, or the last number of racks."""
        if size is not None:
            assert more == {"replace": False}
            return of[:size][::-1]
        if isinstance(of, tuple):
            return of[-1]
        self.chances.append([round(float(chance), 4) for chance in more["p"]])
        return ODDS.index(self.incidents.pop(0))

    def permutation(self, count: int) -> Any:
        """Return the partitions in reverse."""
        return np.arange(count)[::-1]

    def lognormal(self, mean: float, sigma: float, count: int) -> Any:
        """Return noise for the last task alone."""
        assert (mean, sigma) == (0.0, 0.1)
        return np.array([1.0] * (count - 1) + [2.0])


def drawn(
    monkeypatch: pytest.MonkeyPatch,
    wholes: Sequence[int],
    incidents: Sequence[str],
    racks: tuple[int, ...] = (1, 2),
) -> tuple[Scenario, Draw]:
    """Return the scenario of a script."""
    draw = Draw(wholes, incidents)
    monkeypatch.setattr(np.random, "default_rng", lambda seed: draw)
    odds = dict(zip(ODDS, (2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0), strict=True))
    shape = Shape(
        members=(1, 5),
        partitions=(4, 9),
        groups=(1, 3),
        racks=racks,
        incidents=(0, 4),
        zipf=(1.0, 2.0),
        records=(100.0, 200.0),
        records_per_s=(25.0, 30.0),
        incident_odds=odds,
    )
    made = generate(shape, 4, 9)
    assert (draw.wholes, draw.incidents) == ([], [])
    return made, draw


def test_the_groups_and_the_loads_of_a_scenario(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last partition is the heaviest; state grows with the load; one group has no state."""
    made, draw = drawn(monkeypatch, [6, 3, 1, 2, 0], [])
    assert made.groups == (
        TaskGroup("topic-0", 1, "topic-0-changelog"),
        TaskGroup("topic-1", 1, None),
        TaskGroup("topic-2", 4, "topic-2-changelog"),
    )
    assert made.rates.tolist() == pytest.approx([25.0, 25.0, 3.0, 4.0, 6.0, 12.0])
    assert made.records.tolist() == [100.0, 0.0, 48.0, 64.0, 96.0, 192.0]
    weights = [5 / 3, 5 / 3, 0.25, 4 / 15, 0.4, 1.6]
    assert made.learned_weights.tolist() == pytest.approx(weights)
    assert draw.bounds == [
        (1.0, 2.0),
        (25.0, 30.0),
        (4.605, 5.298),
        (25.0, 30.0),
        (25.0, 30.0),
        (4.605, 5.298),
    ]
    assert made.start == ("worker-000", "worker-001")
    assert made.workers == (Worker("worker-000", "rack-0"), Worker("worker-001", "rack-1"))
    assert (made.scenario_id, made.seed, made.events) == (4, 9, ())


def test_a_scenario_has_no_more_groups_than_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sole group has state, and a sole rack has no name."""
    made, _ = drawn(monkeypatch, [4, 1, 5, 0], [], racks=(1,))
    assert made.groups == (TaskGroup("topic-0", 4, "topic-0-changelog"),)
    assert [worker.rack_id for worker in made.workers] == [None] * 5


NAMES = [f"worker-{number:03d}" for number in range(9)]
ALONE = [4, 1]


@pytest.mark.parametrize(
    ("name", "members", "wholes", "events"),
    [
        ("deploy", 2, [], [(120.0, Kind.RESTART, 0, 4.0), (154.0, Kind.RESTART, 1, 4.0)]),
        ("crash", 3, [1], [(120.0, Kind.CRASH, 1, 0.0)]),
        ("crash", 2, [], [(120.0, Kind.JOIN, 2, 0.0)]),
        ("leave", 3, [2], [(120.0, Kind.LEAVE, 2, 0.0)]),
        ("leave", 2, [], [(120.0, Kind.JOIN, 2, 0.0)]),
        ("bounce", 1, [0], [(120.0, Kind.BOUNCE, 0, 1.0)]),
        ("join", 3, [], [(120.0, Kind.JOIN, 3, 0.0)]),
        ("scale_out", 1, [4], [(120.0, Kind.JOIN, n, 0.0) for n in (1, 2, 3, 4)]),
        ("lose_rack", 5, [3], [(120.0, Kind.BOUNCE, n, 120.0) for n in (1, 3)]),
    ],
)
def test_an_incident_as_it_is_drawn(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    members: int,
    wholes: list[int],
    events: list[tuple[float, Kind, int, float]],
) -> None:
    """An incident that would leave fewer than two workers becomes a join."""
    made, draw = drawn(monkeypatch, [*ALONE, members, 1, *wholes], [name])
    assert [
        (round(event.at_s, 6), event.kind, event.member_id, event.down_s) for event in made.events
    ] == [(at, kind, NAMES[number], down) for at, kind, number, down in events]
    assert draw.chances == [[0.25, *[0.125] * 6]]
    quiet, *others = draw.bounds[3:]
    assert quiet == (4.787, 8.189)
    assert others == {
        "deploy": [(30.0, 90.0), (4.0, 20.0)],
        "bounce": [(1.0, 15.0)],
        "lose_rack": [(120.0, 900.0)],
    }.get(name, [])


def test_a_fleet_in_one_rack_loses_no_rack(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker joins instead."""
    made, _ = drawn(monkeypatch, [*ALONE, 3, 1], ["lose_rack"], racks=(1,))
    assert [event.kind for event in made.events] == [Kind.JOIN]


def test_incidents_follow_each_other_and_hit_the_running_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A lost rack and a deploy take time; removed workers have no more incidents."""
    wholes = [*ALONE, 4, 4, 0, 1, 2]
    made, _ = drawn(monkeypatch, wholes, ["lose_rack", "crash", "deploy", "bounce"])
    assert [(round(e.at_s, 6), e.kind, e.member_id) for e in made.events] == [
        (120.0, Kind.BOUNCE, NAMES[0]),
        (120.0, Kind.BOUNCE, NAMES[2]),
        (360.0, Kind.CRASH, NAMES[1]),
        *((480.0 + 34.0 * n, Kind.RESTART, NAMES[number]) for n, number in enumerate((0, 2, 3))),
        (702.0, Kind.BOUNCE, NAMES[3]),
    ]
    assert made.start == tuple(NAMES[:4])
    assert made.events[0] == Event(made.events[0].at_s, Kind.BOUNCE, NAMES[0], 120.0)

"""The sums over a run's rows."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.pipeline.simulate import run
from faust_assigner.pipeline.simulate.policies import arms
from faust_assigner.pipeline.simulate.scenarios import Shape, generate
from faust_assigner.simulation.fleet import Scenario


def row(policy: str, standbys: int, rebalances: int, moved: int, cold_moves: int) -> Any:
    """Return the counted fields of a row."""
    return SimpleNamespace(
        policy=policy, standbys=standbys, rebalances=rebalances, moved=moved, cold_moves=cold_moves
    )


def test_predictions_of_an_arm_are_the_sums_over_its_recordings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An arm is a policy with a number of standbys."""
    rows = [
        row("ours", 1, 2, 30, 4),
        row("ours", 0, 7, 70, 7),
        row("ours", 1, 1, 5, 0),
        row("faust", 1, 9, 90, 9),
    ]
    asked: list[Any] = []
    monkeypatch.setattr(run, "play", lambda it, which: asked.append((it, list(which))) or rows)
    whole: Any = object()
    assert run.replayed(whole, 3) == [
        {
            "policy": "ours",
            "standbys": 1,
            "predicted": {"rebalances": 3, "moved": 35, "cold_moves": 4},
        },
        {
            "policy": "ours",
            "standbys": 0,
            "predicted": {"rebalances": 7, "moved": 70, "cold_moves": 7},
        },
        {
            "policy": "faust",
            "standbys": 1,
            "predicted": {"rebalances": 9, "moved": 90, "cold_moves": 9},
        },
    ]
    assert asked == [(whole, [0, 1, 2])]


class InOneRack:
    """A fleet that starts in a single rack; later workers are in two more racks."""

    def scenario(self, scenario_id: int, seed: int) -> Scenario:
        """Return a generated scenario with other racks."""
        made = generate(Shape(members=(3, 3), partitions=(4, 4)), scenario_id, seed)
        workers = [
            replace(one, rack_id="first" if one.member_id in made.start else f"rack-{n % 2}")
            for n, one in enumerate(made.workers)
        ]
        return replace(made, workers=tuple(workers))

    def split_of(self, scenario_id: int) -> int | None:
        """Return None: there are no parts."""
        return None


def test_a_row_has_the_members_and_racks_of_the_start() -> None:
    """Both choose a fleet's settings: a later worker must not add racks to the start."""
    it = run.Run(1, InOneRack(), run.default_arms()[:1])
    scenarios = [it.source.scenario(n, run.scenario_seed(it.seed, n)) for n in range(3)]
    assert any(len({one.rack_id for one in made.workers}) == 3 for made in scenarios)
    assert {(row.members, row.racks) for row in run.play(it, range(3))} == {(3, 1)}


def test_a_users_policy_claims_files_and_plays_no_cooperative_rounds() -> None:
    """Stock's workers forget their files; aiokafka's strategies are played without standbys."""
    names = ("faust_assigner.planner:plan", "stock+weights", "aiokafka-sticky", "ours+eager+static")
    found = {
        (arm.label, arm.replicas): (arm.claims_files, arm.cooperative)
        for arm in arms(names, (1, 2))
    }
    assert found == {
        ("faust_assigner.planner:plan", 1): (True, False),
        ("faust_assigner.planner:plan", 2): (True, False),
        ("stock+weights", 1): (False, False),
        ("stock+weights", 2): (False, False),
        ("aiokafka-sticky", 0): (False, False),
        ("ours+static+eager", 1): (True, False),
        ("ours+static+eager", 2): (True, False),
    }

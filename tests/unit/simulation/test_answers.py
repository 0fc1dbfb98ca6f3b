"""The answers of a policy: refused if a task has two owners, and unchanged by the runs that share them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from faust_assigner import Member
from faust_assigner.pipeline.simulate.policies import Placement
from faust_assigner.simulation.fleet import Arm, Event, Kind
from faust_assigner.simulation.simulator import PolicyError, simulate
from tests.unit.simulation.test_simulator import COSTS, OURS, fleet


def test_a_policy_that_gives_a_task_to_two_members_is_refused_by_name() -> None:
    """The error names the task and the number of its owners, with the switches of the arm."""

    def generous(
        members: Sequence[Member], partitions: Mapping[str, int], **_: object
    ) -> Placement:
        return Placement({"w0": {"t": [0, 1]}, "w1": {"t": [1]}, "w2": {"t": [1, 2]}}, {})

    text = r"scenario 0, policy mine\+static: task 1 has 3 owners, expected 1"
    with pytest.raises(PolicyError, match=text):
        simulate(fleet(workers=3, tasks=3), Arm("mine", 0, static=True), generous)


@pytest.mark.parametrize("cooperative", [False, True])
def test_a_shared_answer_survives_the_death_of_all_workers(cooperative: bool) -> None:
    """The first run loses all owners; the second run starts with the same first answer."""
    scenario = fleet(*(Event(100.0, Kind.BOUNCE, name, 200.0) for name in ("w0", "w1")), tasks=5)
    arm, memo = Arm("ours", 1, cooperative=cooperative), dict[Any, Any]()
    alone = simulate(scenario, arm, OURS, costs=COSTS)
    first, second = (simulate(scenario, arm, OURS, costs=COSTS, memo=memo) for _ in range(2))
    assert first == second == alone
    assert (alone.rebalances, alone.worst_gap_s > 200.0) == (1, True)


@pytest.mark.parametrize(
    ("switches", "label"),
    [
        ((), "mine"),
        (("static",), "mine+static"),
        (("weighted",), "mine+weights"),
        (("eager",), "mine+eager"),
        (("eager", "weighted", "static"), "mine+static+weights+eager"),
    ],
)
def test_the_label_of_an_arm_has_its_switches(switches: Sequence[str], label: str) -> None:
    """The switches are in a fixed order; claims of files and cooperative rounds are no switches."""
    settings: dict[str, Any] = dict.fromkeys(switches, True)
    assert Arm("mine", 3, claims_files=False, cooperative=True, **settings).label == label

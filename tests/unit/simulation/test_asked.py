"""The input of a policy in a simulation: whole members, claims and weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from faust_assigner import plan
from faust_assigner.simulation.fleet import Arm, TaskGroup, Worker, claims_of
from faust_assigner.simulation.question import Question
from faust_assigner.simulation.replicas import Replicas
from tests.unit.simulation.test_simulator import COSTS, fleet


def test_a_task_is_claimed_for_each_topic_of_its_group() -> None:
    """A group without a claimed task has no entry."""
    groups = (TaskGroup("a", 2, "a-changelog"), TaskGroup("b", 3, None), TaskGroup("c", 1, None))
    mine = np.array([False, True, True, False, True, False])
    found = claims_of(groups, np.array([0, 2, 5, 6]), mine)
    assert {topic: list(numbers) for topic, numbers in found.items()} == {
        "a": [1],
        "a-changelog": [1],
        "b": [0, 2],
    }


@pytest.mark.parametrize("weighted", [True, False])
def test_a_policy_gets_the_capacities_and_the_weights_of_its_arm(weighted: bool) -> None:
    """A weight is that of the file; without the switch there are no weights."""
    base = fleet()
    workers = tuple(Worker(one.member_id, f"r{n}", n + 0.5) for n, one in enumerate(base.workers))
    scenario = replace(
        base, workers=workers, learned_weights=np.arange(base.tasks, dtype=float) + 2
    )
    asked: list[Any] = []

    def policy(members: Any, partitions: Any, **more: Any) -> Any:
        asked.append((members, partitions, more))
        return plan(members, partitions, **more)

    arm = Arm("mine", 1, weighted=weighted)
    question = Question(scenario, arm, policy, COSTS, {})
    living = np.arange(len(workers))
    question.ask(Replicas(scenario), living, np.ones(len(workers), bool))
    ((members, partitions, more),) = asked
    assert [(m.member_id, m.rack_id, m.capacity, m.generation) for m in members] == [
        (worker.member_id, worker.rack_id, worker.capacity, -1) for worker in workers
    ]
    assert partitions == scenario.partitions
    assert more == {
        "replicas": 1,
        "changelogs": scenario.changelogs,
        "weights": scenario.weights if weighted else None,
    }


def test_arms_share_a_result_only_if_the_policy_gets_equal_input() -> None:
    """Each part of the input makes another question; a changed answer changes no later answer."""
    scenario = fleet()
    asked: list[Any] = []

    def policy(members: Any, partitions: Any, **more: Any) -> Any:
        asked.append(members)
        return plan(members, partitions, **more)

    memo: dict[Any, Any] = {}
    everyone = np.arange(len(scenario.workers))
    nobody = np.zeros(len(everyone), bool)
    first = nobody.copy()
    first[0] = True
    base = Replicas(scenario)

    def calls(arm: Arm, replicas: Replicas = base, living: Any = everyone, new: Any = first) -> int:
        """Ask, damage the answer, ask again, and return the number of the policy's calls."""
        before = len(asked)
        question = Question(scenario, arm, policy, COSTS, memo)
        found = question.ask(replicas, living, new)
        whole = [array.copy() for array in found]
        for array in found:
            array[:] = 1
        again = question.ask(replicas, living, new)
        assert all((mine == each).all() for mine, each in zip(again, whole, strict=True))
        return len(asked) - before

    arm = Arm("mine", 1)
    assert calls(arm) == 1
    assert calls(replace(arm, static=True)) == 0
    for other in ("policy", "replicas", "weighted", "cooperative"):
        value: Any = {"policy": "other", "replicas": 0}.get(other, True)
        assert calls(replace(arm, **{other: value})) == 1
    assert calls(arm, living=everyone[:-1]) == 1
    assert calls(arm, new=nobody) == 1
    for name in ("owner", "standby", "holds", "awaited", "lag"):
        changed = Replicas(scenario)
        array = getattr(changed, name)
        array[(0,) * array.ndim] = 1
        assert calls(arm, changed) == (name in ("owner", "standby", "holds"))
    for name in ("awaited", "lag"):
        changed = Replicas(scenario)
        changed.holds[:] = True
        assert calls(Arm("mine", 1, cooperative=True), changed) == (name == "awaited")
        array = getattr(changed, name)
        array[0, 0] = 7
        assert calls(Arm("mine", 1, cooperative=True), changed) == 1

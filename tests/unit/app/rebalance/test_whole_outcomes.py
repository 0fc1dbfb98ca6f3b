"""Outcomes with different numbers in each field, and warm-ups beside standbys in the next round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from faust_assigner import Member
from faust_assigner.app.rebalance.next_round import awaited, with_next_warmups
from faust_assigner.app.rebalance.outcome import outcome_of, trigger
from faust_assigner.model import NOBODY, Ints, WarmupPlan
from faust_assigner.planner import Plan
from faust_assigner.wire.outcome import Outcome
from tests.unit.app.rebalance.test_next_round import UNEVEN, planned
from tests.unit.app.rebalance.test_outcome import inputs_of, member
from tests.unit.app.rebalance.test_outcome import planned as planned_outcome


def column(like: Ints, values: dict[int, int]) -> Ints:
    """Return an array like ``like`` with these values, else nobody."""
    found = np.full_like(like, NOBODY)
    for at, value in values.items():
        found[at] = value
    return found


def test_each_number_of_an_outcome_is_its_own() -> None:
    """A task may be off target without a move, and warm up without either."""
    members = (member("a", range(4)), member("b"), member("c"))
    found = planned_outcome(*members)
    owner = np.array([0, 1, 2, 0, 1])
    moved, cold = np.zeros(5, dtype=np.bool_), np.zeros(5, dtype=np.bool_)
    moved[:3] = cold[1] = True
    shown: Any = SimpleNamespace(
        layout=found.layout,
        flat_moved=moved,
        flat_cold=cold,
        flat_owner=owner,
        flat_target=np.array([0, 1, 2, 1, 0]),
        flat_warmup=np.array([1, 0, 0, 2, NOBODY]),
    )
    inputs = inputs_of(*members, trigger="leave", left=frozenset({"http://z", "http://d"}))
    first = Outcome(trigger="join", completes="", joined=("http://j",), left=("http://l",))
    works = shown.layout.per_task(lambda group: not group.weightless)
    assert outcome_of(inputs, shown, at=12.75, first=first) == Outcome(
        trigger="leave",
        completes="join",
        decided_at=12,
        members=3,
        joined=("http://j",),
        left=("http://d", "http://z"),
        is_planned=True,
        leads=True,
        tasks=4,
        moved=int(works[:3].sum()),
        cold=1,
        off_target=2,
        warming=4,
    )


def test_members_with_standbys_alone_make_a_first_round() -> None:
    """So does a group whose members have only claims of their former processes."""
    spare = Member("a", ["log"], standbys={"log": [1]}, generation=3)
    former = Member("b", ["log"], former_actives={"log": [1]}, former_generation=2)
    assert trigger(None, inputs_of(spare, former)) == "first"
    owner = Member("c", ["log"], actives={"log": [0]}, generation=3)
    assert trigger(None, inputs_of(spare, former, owner)) == "rejoin"


def test_a_holder_of_a_copy_gets_no_warm_up_whatever_the_task_warms_now() -> None:
    """Another member's warm-up of the task ends; the awaited member's copy goes on as a standby."""
    found = planned(UNEVEN)
    spare = [int(one) for one in found.flat_standby[:, 0]]
    holders = {task: one for task, one in enumerate(spare) if one != NOBODY}
    task, holder = next(iter(holders.items()))
    other = next(m for m in range(3) if m not in (holder, int(found.flat_owner[task])))
    warming = column(found.flat_owner, {task: other})
    now = replace(found, warmup_plan=WarmupPlan(found.flat_target, warming, warming, {}))
    wanted = column(found.flat_owner, {task: holder})
    nobody = column(found.flat_owner, {})

    def again(members: Sequence[Member]) -> Plan:
        return replace(found, warmup_plan=WarmupPlan(found.flat_target, nobody, wanted, {"log": 7}))

    result = with_next_warmups(now, UNEVEN, again)
    assert result.warmup_plan is not None
    assert result.warmup_plan.awaited.tolist() == wanted.tolist()
    assert result.warmup_plan.warmup.tolist() == nobody.tolist()
    assert result.warmup_plan.disbelieved == {"log": 7}
    assert result.flat_owner is now.flat_owner
    assert awaited(now, UNEVEN, again) == {}

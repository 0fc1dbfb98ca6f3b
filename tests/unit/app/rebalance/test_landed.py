"""The second of two rounds: the first round's target from the claims, or a new plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from faust_assigner import Member, plan
from faust_assigner.app.rebalance.member_claims import MemberClaims
from faust_assigner.app.rebalance.second_round import landed
from faust_assigner.model import NOBODY, WarmupPlan
from faust_assigner.planner import Plan
from faust_assigner.wire.join import JoinData
from faust_assigner.wire.runs import Runs

COUNTS = {"clicks": 2, "log": 4, "orders": 4}


def planned(replicas: int = 1) -> Plan:
    """Return the plan of three members without claims."""
    return plan(
        [Member(m, list(COUNTS)) for m in "abc"], COUNTS, replicas=replicas, changelogs={"log"}
    )


def says(
    name: str,
    owned: Sequence[int] = (),
    copies: Sequence[int] = (),
    promised: Sequence[int] = (),
    topics: Sequence[str] = ("orders", "log"),
    **said: Any,
) -> MemberClaims:
    """Return the claims of a member after the first round."""

    def of(numbers: Sequence[int]) -> dict[str, Runs]:
        return {topic: Runs.of(numbers) for topic in topics} if numbers else {}

    return MemberClaims(
        name,
        tuple(COUNTS),
        JoinData(
            "",
            of(owned),
            {"log": Runs.of(copies)} if copies else {},
            promised=of(promised),
            **{"generation": 7, "among": 3, **said},
        ),
        4,
    )


#: These claims differ from the plan and cover all tasks.
SAID = (says("a", [3], [0, 1, 2]), says("b", [0], [1, 2, 3], promised=[2]), says("c", [1], [0, 3]))


def owners(found: Plan, group: str = "orders") -> list[int]:
    """Return the index of each partition's owner."""
    g = next(i for i, one in enumerate(found.groups) if group in one.topics)
    return list(found.layout.of(g, found.flat_owner))


def standbys(found: Plan) -> list[list[int]]:
    """Return the standbys of each partition of the log."""
    g = next(i for i, one in enumerate(found.groups) if "log" in one.topics)
    return found.flat_standby[found.layout.start[g] : found.layout.start[g + 1]].tolist()


def test_what_was_given_and_promised_is_the_target() -> None:
    """Copies count up to the replicas, by member and never with the owner; the rest is planned."""
    found = landed(planned(), SAID)
    assert owners(found) == [1, 2, 1, 0]
    assert standbys(found) == [[0], [0], [0], [1]]
    assert standbys(landed(planned(2), SAID[::-1])) == [[0, 2], [0, 1], [0, NOBODY], [1, 2]]
    assert owners(found, "clicks") == owners(planned(), "clicks")


def test_positions_beyond_the_end_are_reported_in_the_second_round_too() -> None:
    """The next round has a new plan; the warning belongs to this round."""
    anew = planned()
    warmup_plan = WarmupPlan(anew.flat_owner, anew.flat_owner, anew.flat_owner, {"log": 2})
    found = landed(replace(anew, warmup_plan=warmup_plan), SAID)
    assert found.warmup_plan is not None
    assert found.warmup_plan.disbelieved == {"log": 2}
    assert list(found.warmup_plan.target) == list(found.flat_owner)
    assert landed(anew, SAID).warmup_plan is None


def test_copies_that_nobody_has_are_not_made_between_two_rounds() -> None:
    """The planned copies would belong to different tasks."""
    none = [says(one.member_id, one.data.actives.get("log", Runs.of(())).numbers()) for one in SAID]
    assert standbys(landed(planned(), none)) == [[NOBODY]] * 4


@pytest.mark.parametrize(
    "other",
    [says("c", [3], generation=6), says("c", [3], among=2), says("c", [3], generation=-1, among=0)],
    ids=["missed the answer", "was in another", "is new"],
)
def test_whoever_was_not_in_the_first_round_makes_it_be_planned_anew(other: MemberClaims) -> None:
    """The first round's target does not include the member."""
    anew = planned()
    assert landed(anew, (*SAID[:2], other)) is anew


@pytest.mark.parametrize("count", [1, 2])
def test_a_death_between_the_rounds_makes_it_be_planned_anew(count: int) -> None:
    """Else the tasks of the dead member would have no owner."""
    anew = planned()
    assert landed(anew, SAID[:count]) is anew


@pytest.mark.parametrize("topic", ["orders", "log"])
def test_a_part_of_a_task_is_no_task(topic: str) -> None:
    """Claims on a single topic of a task move nothing."""
    anew = planned()
    said = [says(m, topics=(topic,), owned=range(4)) for m in "abc"]
    assert owners(landed(anew, said)) == owners(anew)

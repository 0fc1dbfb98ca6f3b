"""The effect of a follow-up round, and the members that the leader informs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from faust.types import TP

from faust_assigner import Member, plan
from faust_assigner.app.rebalance import leader
from faust_assigner.app.rebalance.next_round import _tasks_by_member, awaited, with_next_warmups
from faust_assigner.model import NOBODY, WarmupPlan
from faust_assigner.planner import Plan
from faust_assigner.wire.answer import AnswerWriter, decode_answer
from faust_assigner.wire.directory import Directory
from tests.support.faust_group import StockAssignor, WireGroup, make_app

LOG = "shop-totals-changelog"
TOPICS = {"orders": 12, LOG: 12}
COUNTS = {"orders": 12, "log": 12}


def member(name: str, owned: Sequence[int] = (), spare: Sequence[int] = (), **more: Any) -> Member:
    """Return a member that owns ``owned`` and is a standby for ``spare``."""
    return Member(
        name,
        list(COUNTS),
        actives={"orders": owned, "log": owned} if owned else {},
        standbys={"log": spare} if spare else {},
        **{"generation": 3, **more},
    )


def remembers(*owned: int) -> dict[str, Any]:
    """Return claims of the member's former process."""
    return {"former_actives": {"orders": owned, "log": owned}, "former_generation": 1}


def planned(members: Sequence[Member], replicas: int = 1) -> Plan:
    """Plan with fixed counts and changelogs."""
    return plan(members, COUNTS, replicas=replicas, changelogs={"log"})


def waits(members: Sequence[Member], replicas: int = 1) -> dict[str, Any]:
    """Return the awaited standbys by member."""
    return awaited(planned(members, replicas), members, lambda again: planned(again, replicas))


#: The owner of 8 to 11 died with all copies on ``a``, so the loads are 8, 4 and 0.
UNEVEN = (member("a", range(4), range(8, 12)), member("b", range(4, 8)), member("c"))


def test_the_members_that_tasks_will_move_to_wait_for_them() -> None:
    """The awaited standbys are the 4 tasks that the next round moves to the empty member."""
    found = planned(UNEVEN)
    assert [len(found.actives(m)["orders"]) if found.actives(m) else 0 for m in "abc"] == [8, 4, 0]
    told = waits(UNEVEN)
    assert told.keys() == {"c"}
    assert told["c"].keys() == {"log"}
    assert len(told["c"]["log"]) == 4
    assert set(told["c"]["log"]) <= set(found.standbys("c")["log"])
    following = planned(
        [
            member(m, found.actives(m).get("orders", ()), found.standbys(m).get("log", ()))
            for m in "abc"
        ]
    )
    assert following.actives("c")["log"] == told["c"]["log"]
    assert following.report()["cold_moves"] == following.report()["off_target"] == 0


def test_loads_of_three_four_and_five_wait_for_one_task() -> None:
    """After a death with uneven copies a single move makes the loads even."""
    members = (
        member("a", [0, 1, 2]),
        member("b", [3, 4, 5], [9]),
        member("c", [6, 7, 8], [10, 11]),
    )
    found = planned(members)
    assert sorted(len(found.actives(m)["orders"]) for m in "abc") == [3, 4, 5]
    told = waits(members)
    assert [(m, len(topics["log"])) for m, topics in told.items()] == [("a", 1)]


def test_what_members_owned_before_a_stop_counts_in_the_next_round_too() -> None:
    """Members repeat these claims; without them the wrong standbys would be awaited."""
    members = (
        member("a", [1, 4, 11], [6]),
        member("b", [0, 6, 9], [1, 2, 4, 7, 11], **remembers(0, 3, 7, 10)),
        member("c", [], [0, 3], **remembers(1, 2, 4, 8)),
    )
    found = planned(members)
    following = planned(
        [
            replace(
                one,
                actives=found.actives(one.member_id),
                standbys=found.standbys(one.member_id),
                generation=4,
            )
            for one in members
        ]
    )
    moves = [p for p in range(12) if following.flat_owner[p] != found.flat_owner[p]]
    assert moves
    assert waits(members) == {"c": {"log": moves}}


def test_nothing_is_awaited_where_the_next_round_would_move_nothing() -> None:
    """The loads are even although promotions missed the target, so a round would not help."""
    members = (member("a", [0, 1, 2], [9, 10, 11]), member("b", [3, 4, 5], [6, 7, 8]))
    assert waits(members) == {}
    assert waits((*UNEVEN[:2], member("c", range(8, 12)))) == {}


def test_nothing_is_awaited_without_standbys() -> None:
    """Without standbys no copy can catch up."""
    assert waits(UNEVEN, replicas=0) == {}


def test_the_planner_is_not_asked_again_when_all_are_where_they_belong() -> None:
    """The second plan costs time only off target."""
    members = [member("a", range(6)), member("b", range(6, 12))]
    assert awaited(planned(members), members, Mock(side_effect=AssertionError)) == {}


# -- over the wire


def uneven(*, newcomer: Any = None) -> WireGroup:
    """Return a wire group: a member of three dies in the round in which a fourth joins."""
    found = WireGroup(TOPICS)
    for name in "abc":
        found.add(name, make_app(f"http://{name}:6066", tables=["totals"]), TOPICS)
    found.rebalance()
    found.remove("c")
    found.add("d", newcomer or make_app("http://d:6066", tables=["totals"]), TOPICS)
    found.rebalance("a")
    return found


def test_each_member_is_told_its_own() -> None:
    """The new member awaits its share; all other members await no standby."""
    found = uneven()
    told = {m: app.assignor.awaited for m, app in found.apps.items()}
    assert len(told["d"].tps) == 4
    assert told["d"].tps <= found.apps["d"].assignor.assigned_standbys()
    assert {tp.topic for tp in told["d"].tps} == {LOG}
    assert not told["a"].tps | told["b"].tps
    assert {wanted.generation for wanted in told.values()} == {1}
    before = found.actives("orders")
    found.rebalance("a")
    moved = {TP(LOG, p) for p, m in found.actives("orders").items() if before[p] != m}
    assert moved == told["d"].tps
    assert not any(app.assignor.awaited.tps for app in found.apps.values())


def test_a_stock_member_is_told_nothing() -> None:
    """Its answer equals Faust's own, key by key."""
    found = uneven(newcomer=make_app("http://d:6066", assignor=StockAssignor, tables=["totals"]))
    answer = decode_answer(ConsumerProtocolMemberAssignment.decode(found.synced["d"]).user_data)
    assert (answer.awaited, answer.generation) == ({}, -1)


def test_a_round_stands_though_the_next_cannot_be_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The failure is logged, and no member awaits a standby."""
    monkeypatch.setattr(leader, "awaited", Mock(side_effect=ZeroDivisionError))
    monkeypatch.setenv("FAUST_ASSIGNER_WARMUPS", "0")
    found = uneven()
    assert sorted(found.actives("orders")) == list(range(12))
    assert not any(app.assignor.awaited.tps for app in found.apps.values())
    assert "follow-up" in caplog.text


def test_only_standbys_that_were_given_are_awaited() -> None:
    """A member cannot catch up with partitions it does not follow."""
    app = make_app("http://w", tables=["totals"])
    writer = AnswerWriter(Directory(), {}, generation=3, is_uniform=True)
    raw = writer.for_ours({"orders": [0]}, {LOG: [1]}, "http://w", awaited={LOG: range(2**31)})
    app.assignor.on_assignment(Mock(assignment=[("orders", [0]), (LOG, [1])], user_data=raw))
    assert app.assignor.awaited.tps == {TP(LOG, 1)}
    app.assignor.on_assignment(Mock(assignment=[("orders", [0])], user_data=raw))
    assert app.assignor.awaited.tps == frozenset()


def test_what_a_member_says_after_a_round_differs_from_before() -> None:
    """Kafka starts no round for a follower with unchanged metadata."""
    found = uneven()
    words = []
    for _ in range(3):
        words.append(found.join_bytes()["d"])
        found.rebalance("a")
    assert len(set(words)) == 3


# -- a second round with the first round's target


def second(found: Plan, following: Plan, **warmup_plan: Sequence[int]) -> tuple[Plan, list[Any]]:
    """Return ``found`` with ``following``'s warm-ups, and the members of the next plan."""
    nobody = np.full_like(found.flat_owner, NOBODY)
    columns = {
        name: np.array(list(warmup_plan.get(name, nobody)), dtype=np.int64)
        for name in ("warmup", "awaited")
    }
    asked: list[Any] = []

    def plan_again(members: Sequence[Member]) -> Plan:
        asked.extend(members)
        return replace(
            following, warmup_plan=WarmupPlan(following.flat_owner, disbelieved={}, **columns)
        )

    return with_next_warmups(found, UNEVEN, plan_again), asked


def test_the_next_round_is_planned_from_what_members_will_claim_after_this_one() -> None:
    """All claims have the same generation, else a new member's tasks would be undated claims."""
    found = planned(UNEVEN)
    _, asked = second(found, found)
    assert [one.member_id for one in asked] == ["a", "b", "c"]
    for one in asked:
        assert one.generation == 0
        assert dict(one.actives) == found.actives(one.member_id)
        assert dict(one.standbys) == found.standbys(one.member_id)


def test_a_copy_that_the_next_round_awaits_is_made_now_and_awaited() -> None:
    """A move of the next round has priority; a holder of a copy needs no further copy."""
    found = planned(UNEVEN)
    spare = [int(member) for member in found.flat_standby[:, 0]]
    warmups = [2] * len(spare)
    result, _ = second(found, found, awaited=warmups)
    assert result.warmup_plan is not None
    assert result.warmup_plan.awaited.tolist() == warmups
    assert result.warmup_plan.warmup.tolist() == [NOBODY if one == 2 else 2 for one in spare]


def test_a_warm_up_alone_has_the_next_round_planned() -> None:
    """Each owner is at its target, and a copy is still catching up."""
    even = planned([member("a", range(4)), member("b", range(4, 8)), member("c", range(8, 12))])
    quiet, asked = second(even, even)
    assert (quiet, asked) == (even, [])
    nobody = np.full_like(even.flat_owner, NOBODY)
    warming = nobody.copy()
    warming[0] = 1
    warmup_plan = WarmupPlan(even.flat_owner, warming, warming, {})
    _, asked = second(replace(even, warmup_plan=warmup_plan), even)
    assert asked


def with_clicks() -> tuple[Plan, int, int]:
    """Return a plan of a table and a stateless topic, with a task index of each."""
    counts = {**COUNTS, "clicks": 2}
    members = [Member(name, list(counts)) for name in "ab"]
    found = plan(members, counts, replicas=1, changelogs={"log"})
    places = {topic: g for g, group in enumerate(found.groups) for topic in group.topics}
    start = found.layout.start
    return found, int(start[places["log"]]), int(start[places["clicks"]])


def test_a_task_without_state_has_no_next_round_planned() -> None:
    """A stateless task moves in any round and has no copy to warm up."""
    found, stateful, stateless = with_clicks()
    members = [Member(name, [*COUNTS, "clicks"]) for name in "ab"]
    for task, is_asked in ((stateless, False), (stateful, True)):
        target = found.flat_owner.copy()
        target[task] = 1 - target[task]
        off = replace(found, flat_target=target)
        asked: list[Any] = []

        def again(members: Sequence[Member], asked: list[Any] = asked) -> Plan:
            asked.append(len(members))
            return found

        assert awaited(off, members, again) == {}
        assert asked == [2] * is_asked


def test_a_task_without_state_that_moves_next_gets_no_copy() -> None:
    """A stateful task beside it gets its next owner's copy now."""
    found, stateful, stateless = with_clicks()
    members = [Member(name, [*COUNTS, "clicks"]) for name in "ab"]
    nobody = np.full_like(found.flat_owner, NOBODY)
    owner, standby = found.flat_owner.copy(), np.full_like(found.flat_standby, NOBODY)
    for task in (stateful, stateless):
        owner[task] = 1 - owner[task]
    target = found.flat_owner.copy()
    target[stateful] = owner[stateful]
    off = replace(found, flat_standby=standby, flat_target=target)
    following = replace(found, flat_owner=owner, warmup_plan=WarmupPlan(owner, nobody, nobody, {}))
    result = with_next_warmups(off, members, lambda members: following)
    assert result.warmup_plan is not None
    expected = nobody.copy()
    expected[stateful] = owner[stateful]
    assert result.warmup_plan.awaited.tolist() == expected.tolist()
    assert result.warmup_plan.warmup.tolist() == expected.tolist()


def test_tasks_of_several_groups_are_listed_for_their_own_members() -> None:
    """Each task counts from the first task of its group, and for each changelog of the group."""
    groups = [SimpleNamespace(changelogs=names) for names in (("a-log", "b-log"), ("c-log",))]
    found: Any = SimpleNamespace(
        groups=groups,
        layout=SimpleNamespace(start=np.array([0, 2, 5])),
        member_ids=("m0", "m1", "m2"),
    )
    who, tasks = np.array([0, 1, 2, 0, 1]), np.array([False, True, True, False, True])
    assert _tasks_by_member(found, who, tasks) == {
        "m1": {"a-log": [1], "b-log": [1], "c-log": [2]},
        "m2": {"c-log": [0]},
    }

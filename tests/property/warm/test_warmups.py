"""Warm-ups: state moves before tasks do, and the group settles in a bounded number of rounds."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from math import ceil
from random import Random

import numpy as np
import pytest

from faust_assigner import Member, Plan, plan
from faust_assigner.checks.invariants import check
from faust_assigner.model import NOBODY
from faust_assigner.warmup import WarmupPolicy
from tests.property.warm.fleets import LOGS, LONG, Fleet, churn, die, drain, fleet, join, off_target
from tests.support.examples import examples


@pytest.mark.parametrize("members", [3, 6, 12, 40, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("event", [join, die, drain, churn])
@pytest.mark.parametrize("groups", [3, 1])
def test_the_target_is_reached_in_as_many_rounds_as_are_promised(
    event: Callable[[Fleet, Random], None], members: int, groups: int
) -> None:
    """The target takes ceil(D / W) + 1 rounds of W tasks each, none cold; then no task moves."""
    for seed in range(examples(4, 2) if members < 40 else 1):
        rng = Random(f"{event.__name__} {members} {seed}")
        per_member, per_group = (rng.randint(1, 4), rng.randint(1, 6)) if members < 40 else (8, 50)
        found = fleet(
            members,
            replicas=rng.choice([0, 1, 2]),
            per_member=per_member,
            per_group=per_group,
            groups=groups,
        )
        event(found, rng)
        made = found.round()
        waits, least = off_target(made), min(per_member, per_group)
        bound, took = ceil(waits / least) + 1, 1
        while off_target(made):
            before, made, took = off_target(made), found.round(), took + 1
            assert off_target(made) <= max(0, before - least), (seed, took)
            assert made.report()["cold_moves"] == 0
            assert took <= bound, (seed, bound)
        assert [found.round().moves for _ in range(2)] == [0, 0]


def test_a_joins_tasks_come_when_they_are_warm() -> None:
    """The newcomer gets stateless tasks at once; the owners keep stateful tasks during warm-ups."""
    found = fleet(4)
    found.join("new")
    first = found.round()
    assert set(first.actives("new")) == {"clicks"}
    assert first.report()["cold_moves"] == 0
    assert first.report()["waiting"] == off_target(first) > 0
    assert sum(map(len, first.warmups("new").values())) == 2
    second = found.round()
    assert second.report()["cold_moves"] == 0
    assert sum(map(len, second.actives("new").values())) > 0


def test_who_is_slow_is_waited_for_and_what_it_has_begun_stays_begun() -> None:
    """Each round restores half of the rest: the same warm-ups stay until their end."""
    found = fleet(4)
    found.join("new")
    begun = found.round(lambda _: 0.5).warmups("new")
    assert begun
    while not (made := found.round(lambda _: 0.5)).moves:
        assert made.warmups("new") == begun
        assert found.generation < 30
    assert all(set(ps) <= set(made.actives("new")[log]) for log, ps in begun.items())


def test_a_lost_warm_up_is_begun_elsewhere() -> None:
    """The newcomer dies during its warm-up; a later member gets the warm-up."""
    found = fleet(4)
    found.join("new")
    found.round(lambda _: 0.5)
    found.leave("new")
    gone = found.round()
    assert (gone.moves, off_target(gone)) == (0, 0)
    found.join("other")
    assert found.round().warmups("other")
    for _ in range(6):
        made = found.round()
    assert off_target(made) == 0
    assert len(made.actives("other")["orders"]) >= 2


def test_of_one_that_never_catches_up_another_task_is_asked_for() -> None:
    """The member reports an overdue task; in the end only its standbys are awaited, and all stay."""
    found = fleet(3, per_member=1, per_group=1)
    found.join("stuck")
    found.stuck.add("stuck")
    tried, overdue = [], {log: set[int]() for log in LOGS}
    for _ in range(40):
        made = found.round()
        assert made.actives("stuck").keys() <= {"clicks"}
        awaited = made.awaited("stuck")
        if all(set(ps) <= overdue[log] for log, ps in awaited.items()):
            break
        tried.append(str(awaited))
        for log, ps in awaited.items():
            overdue[log] |= set(ps)
        found.change("stuck", overdue={log: sorted(ps) for log, ps in overdue.items()})
    assert len(set(tried)) == len(tried) > 1
    assert not made.warmups("stuck")
    spares = made.standbys("stuck")
    assert all(set(ps) <= set(spares[log]) for log, ps in awaited.items())
    found.stuck.clear()
    found.change("stuck", overdue={})
    for _ in range(12):
        made = found.round()
    assert off_target(made) == 0


def test_the_nearest_to_done_comes_first() -> None:
    """With one warm-up at a time, the task with the least lag comes first."""
    found = fleet(3, replicas=0, per_member=1, per_group=1)
    found.join("new")
    first = found.round(lambda _: 0.0)
    wanted = [p for p, m in enumerate(first.target[2].tolist()) if first.member_ids[m] == "new"]
    assert len(wanted) > 1
    found.has["new"]["orders-log"] = {wanted[-1]: LONG - 5000}
    found.change("new", standbys={"orders-log": [wanted[-1]]}, awaited={"orders-log": [wanted[-1]]})
    assert found.round(lambda _: 0.0).warmups("new") == {"orders-log": [wanted[-1]]}


def alone(ends: dict[int, int], *, begun: dict[int, int]) -> list[int]:
    """Return the warm-up of a newcomer limited to one, beside an owner of four partitions.

    ``begun`` is the newcomer's position in each partition of the last round's warm-ups.
    """
    members = [
        Member(
            "a",
            ["t", "t-log"],
            actives={"t": range(4), "t-log": range(4)},
            generation=1,
            positions={"t-log": ends},
        ),
        Member(
            "b",
            ["t", "t-log"],
            standbys={"t-log": list(begun)},
            awaited={"t-log": list(begun)},
            generation=1,
            positions={"t-log": begun},
        ),
    ]
    made = plan(
        members,
        {"t": 4, "t-log": 4},
        changelogs={"t-log"},
        warmups=WarmupPolicy(acceptable_recovery_lag=10, max_per_member=1),
    )
    return made.warmups("b").get("t-log", [])


def test_the_begun_keep_their_place_beside_the_short() -> None:
    """Otherwise a short warm-up would always replace the long one, and the long one never ends."""
    assert alone({0: 700, 1: 700, 2: LONG, 3: 600}, begun={2: 5}) == [2]


def test_what_was_promised_is_asked_for_again() -> None:
    """Among copies with equal lag, the warm-up begun in the last round has priority."""
    ends = dict.fromkeys(range(3), LONG)
    members = [
        Member(
            "a",
            ["t", "t-log"],
            actives={"t": range(3), "t-log": range(3)},
            generation=1,
            positions={"t-log": ends},
        ),
        Member(
            "b",
            ["t", "t-log"],
            standbys={"t-log": range(3)},
            awaited={"t-log": [1]},
            generation=1,
            positions={"t-log": {0: 5, 1: 5, 2: 5}},
        ),
    ]
    made = plan(members, {"t": 3, "t-log": 3}, changelogs={"t-log"}, warmups=WarmupPolicy())
    assert made.awaited("b") == {"t-log": [1]}


def test_all_that_was_promised_comes_though_counts_could_be_others() -> None:
    """The odd task goes to the member with the begun warm-up, not the member with more copies."""

    def holds(*numbers: int) -> dict[str, list[int]]:
        return {"t": list(numbers), "t-log": list(numbers)}

    end = {"t-log": dict.fromkeys(range(17), LONG)}
    members = [
        Member("a", ["t", "t-log"], actives=holds(*range(12)), generation=1, positions=end),
        Member(
            "x",
            ["t", "t-log"],
            actives=holds(*range(12, 17)),
            standbys={"t-log": [0]},
            awaited={"t-log": [0]},
            generation=1,
            positions=end,
        ),
        Member(
            "y",
            ["t", "t-log"],
            standbys={"t-log": [1, 2, 3, 4]},
            awaited={"t-log": [1, 2, 3, 4]},
            generation=1,
            positions={"t-log": dict.fromkeys(range(1, 5), LONG)},
        ),
    ]
    made = plan(members, {"t": 17, "t-log": 17}, changelogs={"t-log"}, warmups=WarmupPolicy())
    assert made.actives("x")["t"] == [0, *range(12, 17)]
    assert made.actives("y")["t"] == [1, 2, 3, 4]
    assert len(made.awaited("y")["t-log"]) == 1


@pytest.mark.parametrize(
    ("overdue", "next_"), [([], [2]), ([2], [0]), ([2, 0], [1]), ([0, 1, 2], [])]
)
def test_what_was_given_up_is_exchanged_for_another_of_its_owner(
    overdue: list[int], next_: list[int]
) -> None:
    """The next task was not overdue before; in the end there is none."""
    members = [
        Member(
            "a",
            ["t", "t-log"],
            actives={"t": range(3), "t-log": range(3)},
            generation=1,
            positions={"t-log": dict.fromkeys(range(3), LONG)},
        ),
        Member("b", ["t", "t-log"], overdue={"t-log": overdue}, positions={}),
    ]
    made = plan(members, {"t": 3, "t-log": 3}, changelogs={"t-log"}, warmups=WarmupPolicy())
    assert made.awaited("b").get("t-log", []) == made.warmups("b").get("t-log", []) == next_
    assert made.moves == 0


def test_a_task_given_up_on_one_member_is_still_awaited_on_another() -> None:
    """The report concerns a pair of task and member, not the task."""
    topics = ["t", "t-log"]
    owner = Member(
        "a",
        topics,
        actives={"t": range(6), "t-log": range(6)},
        generation=1,
        positions={"t-log": dict.fromkeys(range(6), LONG)},
    )
    newcomers = [Member(name, topics, positions={}) for name in "bc"]

    def awaited(overdue: dict[str, list[int]]) -> dict[str, list[int]]:
        changed = [
            replace(one, overdue={"t-log": overdue.get(one.member_id, [])}) for one in newcomers
        ]
        made = plan(
            [owner, *changed],
            dict.fromkeys(topics, 6),
            changelogs={"t-log"},
            warmups=WarmupPolicy(),
        )
        return {name: list(made.awaited(name).get("t-log", [])) for name in "bc"}

    before = awaited({})
    assert before["b"]
    assert awaited({"c": before["b"]}) == before


def test_of_two_on_one_member_the_shorter_comes_first() -> None:
    """Only one of two tasks may move: the lag decides, not the partition number."""
    assert alone({0: 700, 1: 700, 2: LONG, 3: 600}, begun={}) == [3]


def one_with_two(standby: int, stranger: int, *, drained: str = "x") -> Plan:
    """Return a plan with two partitions and two members with copies; ``drained`` gets no task."""
    both = [0, 1]
    members = [
        Member(
            "a",
            ["t", "t-log"],
            actives={"t": both, "t-log": both},
            generation=1,
            positions={"t-log": dict.fromkeys(both, LONG)},
        )
    ]
    members += [
        Member(
            name,
            ["t", "t-log"],
            standbys={"t-log": both},
            generation=1,
            capacity=1e-6 if name == drained else 1.0,
            positions={"t-log": dict.fromkeys(both, at)},
        )
        for name, at in (("b", standby), ("x", stranger))
    ]
    made = plan(members, {"t": 2, "t-log": 2}, changelogs={"t-log"}, warmups=WarmupPolicy())
    assert (
        check(members, {"t": 2, "t-log": 2}, made, changelogs={"t-log"}, warmups=WarmupPolicy())
        == []
    )
    return made


@pytest.mark.parametrize("stranger", [LONG + 90_000, 2 * LONG, 1 << 61])
def test_what_a_stranger_claims_keeps_nobody_waiting(stranger: int) -> None:
    """The owner's end offset counts: a copy at the end is warm despite a claim beyond the end."""
    made = one_with_two(LONG - 1, stranger)
    assert (made.moves, len(made.actives("b")["t"])) == (1, 1)


def test_a_claim_beyond_the_end_is_no_warmth_and_is_counted() -> None:
    """The file belongs to an older topic: a replica comes first, and the claim is counted."""
    made = one_with_two(LONG, 5 * LONG, drained="b")
    assert (made.moves, len(made.awaited("x")["t-log"])) == (0, 1)
    assert made.warmup_plan is not None
    assert made.warmup_plan.disbelieved == {"t-log": 2}


def test_ends_however_far_are_waited_for() -> None:
    """The sum of the largest possible lags is still a valid number."""
    logs, far = ("t-log", "u-log", "v-log"), (1 << 62) - 1
    holds = {topic: [0, 1] for topic in ("t", *logs)}
    members = [
        Member(
            "a",
            list(holds),
            actives=holds,
            generation=1,
            positions=dict.fromkeys(logs, dict.fromkeys([0, 1], far)),
        ),
        Member(
            "b",
            list(holds),
            standbys={log: [0, 1] for log in logs},
            generation=1,
            positions={log: {0: 1, 1: 1} for log in logs},
        ),
    ]
    made = plan(
        members, dict.fromkeys(holds, 2), replicas=1, changelogs=logs, warmups=WarmupPolicy()
    )
    assert made.moves == 0
    assert {log: len(ps) for log, ps in made.awaited("b").items()} == dict.fromkeys(logs, 1)


def test_a_copy_may_be_a_little_further_than_its_owner_said() -> None:
    """The copy's member joined later, while the owner continued to write."""
    made = one_with_two(LONG, LONG + 100_000, drained="b")
    assert (made.moves, len(made.actives("x")["t"])) == (1, 1)
    assert made.warmup_plan is not None
    assert made.warmup_plan.disbelieved == {}


def test_of_a_partition_whose_owner_tells_no_end_nothing_is_disbelieved() -> None:
    """The owner's table is in memory, or the owner has just started."""
    members = [
        Member("a", ["t", "t-log"], actives={"t": [0], "t-log": [0]}, generation=1, positions={}),
        Member(
            "b",
            ["t", "t-log"],
            standbys={"t-log": [0]},
            generation=1,
            positions={"t-log": {0: LONG}},
        ),
    ]
    made = plan(members, {"t": 1, "t-log": 1}, changelogs={"t-log"}, warmups=WarmupPolicy())
    assert made.warmup_plan is not None
    assert made.warmup_plan.disbelieved == {}


def test_standbys_stay_while_warm_ups_are_under_way() -> None:
    """A replica in warm-up is not a former standby: no standby is dropped for the replica."""
    found = fleet(5, replicas=1, per_member=4, per_group=4)
    found.join("a-new-one")
    first = found.round(lambda _: 0.5)
    for _ in range(2):
        made = found.round(lambda _: 0.1)
        assert np.array_equal(made.flat_standby, first.flat_standby)


@pytest.mark.parametrize("silent", ["owner", "target"])
def test_what_cannot_be_measured_is_not_waited_for(silent: str) -> None:
    """An older member reports no positions: its tasks move at once, as without warm-ups."""
    members = [
        Member(
            "a",
            ["t", "t-log"],
            actives={"t": [0, 1], "t-log": [0, 1]},
            generation=1,
            positions=None if silent == "owner" else {"t-log": {0: LONG, 1: LONG}},
        ),
        Member("b", ["t", "t-log"], positions=None if silent == "target" else {}),
    ]
    made = plan(members, {"t": 2, "t-log": 2}, changelogs={"t-log"}, warmups=WarmupPolicy())
    assert made.moves == 1
    assert off_target(made) == 0


@pytest.mark.parametrize(
    ("end", "at", "moves"),
    [(LONG, LONG - 10_000, 1), (LONG, LONG - 10_001, 0), (10_001, 1, 1), (100, 0, 1), (101, 0, 0)],
)
def test_who_is_near_takes_over_and_who_has_nothing_does_not(end: int, at: int, moves: int) -> None:
    """Resuming takes little time; starting takes longer, so the policy limits it separately."""
    copies = {"t-log": [0, 1]} if at else {}
    members = [
        Member(
            "a",
            ["t", "t-log"],
            actives={"t": [0, 1], "t-log": [0, 1]},
            generation=1,
            positions={"t-log": {0: end, 1: end}},
        ),
        Member(
            "b",
            ["t", "t-log"],
            standbys=copies,
            generation=1 if at else -1,
            positions={"t-log": dict.fromkeys(copies.get("t-log", ()), at)},
        ),
    ]
    made = plan(
        members,
        {"t": 2, "t-log": 2},
        replicas=1,
        changelogs={"t-log"},
        warmups=WarmupPolicy(acceptable_from_nothing=100),
    )
    assert made.moves == moves


@pytest.mark.parametrize("lacking", ["t-log", "u-log"])
def test_one_log_of_several_that_a_member_lacks_makes_it_cold(lacking: str) -> None:
    """The total lag does not matter."""
    topics = ["t", "t-log", "u-log"]
    counts, logs = dict.fromkeys(topics, 2), {"t-log", "u-log"}
    owned = {topic: [0, 1] for topic in topics}
    copied = {log: [0, 1] for log in sorted(logs - {lacking})}
    members = [
        Member(
            "a",
            topics,
            actives=owned,
            generation=1,
            positions={log: {0: 500, 1: 500} for log in logs},
        ),
        Member(
            "b",
            topics,
            standbys=copied,
            generation=1,
            positions={log: {0: 500, 1: 500} for log in copied},
        ),
    ]
    policy = WarmupPolicy(acceptable_from_nothing=100)
    assert plan(members, counts, replicas=1, changelogs=logs, warmups=policy).moves == 0


@pytest.mark.parametrize(("apart", "moves"), [((6_000, 5_000), 0), ((5_000, 5_000), 1)])
def test_what_a_member_is_behind_in_several_logs_is_added(
    apart: tuple[int, int], moves: int
) -> None:
    """A total lag of 10,000 records is acceptable, in any split over a task's tables."""
    topics, logs = ["t", "t-log", "u-log"], ("t-log", "u-log")
    behind = dict(zip(logs, apart, strict=True))
    members = [
        Member(
            "a",
            topics,
            actives={topic: [0, 1] for topic in topics},
            generation=1,
            positions={log: {0: LONG, 1: LONG} for log in logs},
        ),
        Member(
            "b",
            topics,
            standbys={log: [0, 1] for log in logs},
            generation=1,
            positions={log: dict.fromkeys((0, 1), LONG - behind[log]) for log in logs},
        ),
    ]
    counts = dict.fromkeys(topics, 2)
    made = plan(members, counts, replicas=1, changelogs=logs, warmups=WarmupPolicy())
    assert made.moves == moves


def test_of_copies_those_that_have_caught_up_are_moved_onto() -> None:
    """Two standbys of a member, one far behind: only the task of the complete standby moves."""
    end = dict.fromkeys(range(4), LONG)
    members = [
        Member(
            "a",
            ["t", "t-log"],
            actives={"t": range(4), "t-log": range(4)},
            generation=1,
            positions={"t-log": end},
        ),
        Member(
            "b",
            ["t", "t-log"],
            standbys={"t-log": range(4)},
            generation=1,
            positions={"t-log": {0: 5, 1: LONG, 2: 7, 3: LONG - 3}},
        ),
    ]
    made = plan(
        members, {"t": 4, "t-log": 4}, replicas=1, changelogs={"t-log"}, warmups=WarmupPolicy()
    )
    assert made.actives("b") == {"t": [1, 3], "t-log": [1, 3]}
    assert made.warmups("b") == {}


def test_without_a_policy_nothing_is_different() -> None:
    """Positions alone change no plan."""
    found = fleet(4)
    found.join("new")
    said = [replace(m, positions=found.has[name]) for name, m in found.members.items()]
    plain = list(found.members.values())
    for made, other in (
        (
            plan(said, found.partitions, replicas=1, changelogs=LOGS),
            plan(plain, found.partitions, replicas=1, changelogs=LOGS),
        ),
    ):
        assert np.array_equal(made.flat_owner, other.flat_owner)
        assert np.array_equal(made.flat_standby, other.flat_standby)
        assert made.awaited("new") == made.warmups("new") == {}


def test_a_member_that_is_drained_and_still_full_overflows_nothing() -> None:
    """The drained member's load per capacity exceeds any number of tasks."""
    found = fleet(4)
    found.change("m000", capacity=1e-6)
    found.change("m001", capacity=1e6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found.round()


@pytest.mark.parametrize(
    "junk",
    [
        {"orders-log": 7},
        {"orders-log": {0: "x", 1: -5, 2: 10**30, "a": 3}},
        {"orders-log": ([0], [1])},
        {3: 4},
        7,
        np.array([1, 2]),
        {"orders-log": ([0, [1]], [1])},
        {"orders-log": (np.eye(2, dtype=int),) * 2},
        {"orders-log": (object(), object())},
        {"orders-log": (np.array(["a"]), np.array([1]))},
        b"junk",
        {"orders-log": (np.array([0.5]), np.array([1]))},
        {"orders-log": (np.array([0, 1]), np.array([1]))},
    ],
)
def test_positions_that_are_none_do_no_harm(junk: object) -> None:
    """The malformed positions come from a member's own metadata."""
    found = fleet(3)
    found.join("new")
    said = [replace(m, positions=found.has[name]) for name, m in found.members.items()]
    said[0] = replace(said[0], positions=junk, awaited=junk, overdue=junk)  # type: ignore[arg-type]
    made = plan(said, found.partitions, replicas=1, changelogs=LOGS, warmups=found.policy)
    assert (
        check(said, found.partitions, made, replicas=1, changelogs=LOGS, warmups=found.policy) == []
    )
    assert (made.flat_owner != NOBODY).all()


@pytest.mark.parametrize(
    "wrong",
    [
        {"acceptable_recovery_lag": -1},
        {"max_per_member": 0},
        {"max_per_group": 0},
        {"acceptable_from_nothing": -1},
    ],
)
def test_a_policy_that_would_never_end_is_refused(wrong: dict[str, int]) -> None:
    """Without a warm-up no task could move."""
    with pytest.raises(ValueError, match="the limits 1 or more"):
        WarmupPolicy(**wrong)
    WarmupPolicy(
        acceptable_recovery_lag=0, acceptable_from_nothing=0, max_per_member=1, max_per_group=1
    )

"""The lag of members, and the state of a group after a round."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from faust_assigner.grouper import PartitionGrouper, starts
from faust_assigner.model import NOBODY, Group, Ints, Layout, Member, Previous
from faust_assigner.planner import plan
from faust_assigner.warmup import Progress, WarmupPolicy

A, B, C = 0, 1, 2
#: Tasks 0 to 3 belong to the table's group, task 4 is stateless.
TOPICS = {"t": 4, "t-log": 4, "stateless": 1}


def ints(*values: int) -> Ints:
    """Return an array of integers."""
    return np.array(values, dtype=np.int64)


def layout() -> Layout:
    """Return a layout of three members subscribed to all topics."""
    groups = PartitionGrouper().group([list(TOPICS)] * 3, TOPICS, changelogs=["t-log"])
    in_order = tuple(sorted(groups, key=lambda group: not group.is_stateful))
    return Layout(
        member_ids=("a", "b", "c"),
        groups=in_order,
        start=starts(in_order),
        capacity=np.ones(3),
        rack=np.full(3, NOBODY),
    )


def previous() -> Previous:
    """Member a owns tasks 0, 1 and 4, b owns 2; task 3 has no owner. Copies are on b and c."""
    return Previous(
        owner=ints(A, A, B, NOBODY, A),
        former=ints(NOBODY, NOBODY, NOBODY, C, NOBODY),
        home=ints(C, NOBODY, A, C, B),
        awaited=ints(B, C, NOBODY, NOBODY, NOBODY),
        copy_task=ints(0, 1, 3),
        copy_member=ints(B, C, C),
        copy_logs=ints(1, 1, 1),
        copy_was_standby=np.array([True, False, True]),
    )


def after() -> Previous:
    """Return the state after a round: b gets task 0 as promised, c task 3, b the stateless task."""
    members = [Member(name, list(TOPICS), positions={}) for name in "abc"]
    progress = Progress(layout(), members, previous(), WarmupPolicy())
    return progress.after(ints(B, A, B, C, B)).previous


def test_after_a_round_a_task_still_has_the_home_of_its_last_stop() -> None:
    """A member's former partitions stay a wish in the next round; the new owner is no home."""
    assert after().home.tolist() == [C, NOBODY, A, C, B]


def test_after_a_round_only_the_open_promises_are_left() -> None:
    """Task 0 has arrived at b; task 1 is still awaited on c."""
    assert after().awaited.tolist() == [NOBODY, C, NOBODY, NOBODY, NOBODY]


def test_after_a_round_no_task_has_a_former_owner() -> None:
    """Every task has an owner then."""
    found = after()
    assert found.former.tolist() == [NOBODY] * 5
    assert found.owner.tolist() == [B, A, B, C, B]


def test_after_a_round_the_former_owner_of_a_stateful_task_has_a_copy() -> None:
    """The copy has one changelog and was no standby; a stateless task has no copies."""
    found = after()
    rows = zip(
        found.copy_task, found.copy_member, found.copy_logs, found.copy_was_standby, strict=True
    )
    assert [tuple(map(int, row)) for row in rows] == [(0, A, 1, False), (1, C, 1, False)]


@pytest.mark.parametrize(
    "limits",
    [
        {"acceptable_recovery_lag": -1},
        {"acceptable_from_nothing": -1},
        {"max_per_member": 0},
        {"max_per_group": 0},
    ],
)
def test_each_limit_of_a_policy_has_a_least_value(limits: dict[str, int]) -> None:
    """The error names the whole policy."""
    with pytest.raises(ValueError, match=f"{next(iter(limits))}={next(iter(limits.values()))}"):
        WarmupPolicy(**limits)


# -- the lag ---------------------------------------------------------------------------------


def fleet(
    *positions: dict[str, dict[int, int]] | None,
    owner: Ints | None = None,
    awaited: Ints | None = None,
    overdue: Any = None,
    overdue_b: Any = None,
    **limits: int,
) -> Progress:
    """Return members a, b and c with six tasks of two changelogs, a follower, and two reports."""
    reports = {"b": overdue_b, "c": overdue}
    everybody = ints(A, B, C)
    groups = (
        Group(
            group_id=6,
            topics=("t", "log", "log2"),
            partitions=6,
            members=everybody,
            changelogs=("log", "log2"),
        ),
        Group(
            group_id=7,
            topics=("more",),
            partitions=6,
            members=everybody,
            changelogs=("more",),
            follows=0,
        ),
    )
    whole = Layout(
        member_ids=("a", "b", "c"),
        groups=groups,
        start=starts(groups),
        capacity=np.ones(3),
        rack=np.full(3, NOBODY),
    )
    nobody = ints(*[NOBODY] * 12)
    owners = nobody.copy()
    owners[:6] = A if owner is None else owner
    owners[6:] = owners[:6]
    promised = nobody.copy()
    promised[:6] = NOBODY if awaited is None else awaited
    past = Previous(
        owner=owners,
        former=nobody,
        home=nobody,
        awaited=promised,
        copy_task=ints(),
        copy_member=ints(),
        copy_logs=ints(),
        copy_was_standby=np.empty(0, dtype=np.bool_),
    )
    said = [*positions, *[{}] * (3 - len(positions))]
    members = [
        Member(
            name, [], positions=where, overdue={} if reports.get(name) is None else reports[name]
        )
        for name, where in zip("abc", said, strict=True)
    ]
    return Progress(whole, members, past, WarmupPolicy(**limits))


def lag(progress: Progress, number: int = 0) -> int:
    """Return the number of records to read by c."""
    return int(progress.lag(0, ints(number), ints(C))[0])


@pytest.mark.parametrize(
    ("owners", "own", "behind"),
    [
        ({"log": 100}, {"log": 40}, 60),
        ({"log": 100, "log2": 50}, {"log": 40, "log2": 45}, 65),
        ({"log": 100, "log2": 50}, {"log": 40, "log2": 55}, 60),
        ({"log": 100}, {"log": 100_100}, 0),
        ({"log": 100}, {"log": 100_101}, 100),
        ({"log": 1 << 60}, {"log": 0}, 1 << 48),
    ],
    ids=["one log", "two logs", "one further on", "plausible", "implausible", "clipped"],
)
def test_the_lag_is_the_sum_of_the_records_to_read_of_each_log(
    owners: dict[str, int], own: dict[str, int], behind: int
) -> None:
    """A lead in one log does not reduce the records to read in another log."""
    at = [{topic: {0: offset} for topic, offset in side.items()} for side in (owners, own)]
    assert lag(fleet(at[0], {}, at[1])) == behind


def test_the_lag_of_a_member_is_unknown_if_it_or_the_owner_is_silent() -> None:
    """No task waits for a member with an unknown lag."""
    ends = {"log": {0: 100}}
    assert (lag(fleet(ends, {}, None)), lag(fleet(None, {}, {"log": {0: 4}}))) == (0, 0)
    assert lag(fleet(ends, {}, {})) == 100


@pytest.mark.parametrize(
    ("end", "at", "is_near"), [(30, 20, True), (31, 20, False), (9, 0, True), (10, 0, False)]
)
def test_each_bound_of_the_lag_is_acceptable_itself(end: int, at: int, is_near: bool) -> None:
    """10 records behind, or a log of 9 records without any state."""
    found = fleet(
        {"log": {0: end}},
        {},
        {"log": {0: at}},
        acceptable_recovery_lag=10,
        acceptable_from_nothing=9,
    )
    assert found.caught_up(0, ints(0), ints(C)).tolist() == [is_near]


@pytest.mark.parametrize(
    ("ends", "own", "is_near"),
    [
        ({"log": {0: 500}}, None, True),
        (None, {}, True),
        (None, {"log": {0: 7}}, True),
        ({"log": {0: 500}}, {}, False),
        ({"log": {0: 500}}, {"log": {0: 499}}, True),
    ],
)
def test_a_member_that_reports_nothing_has_caught_up_with_a_log_of_any_length(
    ends: dict[str, dict[int, int]] | None, own: dict[str, dict[int, int]] | None, is_near: bool
) -> None:
    """No task waits for a member, or of an owner, without positions; an empty report is a report."""
    found = fleet(ends, {}, own, acceptable_recovery_lag=1, acceptable_from_nothing=3)
    assert found.caught_up(0, ints(0), ints(C)).tolist() == [is_near]
    waits = found.held(to(0))
    assert waits.tolist() == [not is_near, *[False] * 11]


# -- this round ------------------------------------------------------------------------------

FAR = {"log": dict.fromkeys(range(6), 900_000)}


def to(*numbers: int, member: int = C, follower: bool = False) -> Ints:
    """Return a target: member a keeps all tasks except ``numbers``."""
    target = ints(*[A] * 12)
    target[[number + 6 * follower for number in numbers]] = member
    return target


def test_a_task_stays_with_its_owner_until_its_target_is_near_and_a_follower_does_not() -> None:
    """A follower goes with its source; a task without an owner waits for no member."""
    found = fleet({**FAR, "more": FAR["log"]})
    assert np.flatnonzero(found.held(to(0, 3))).tolist() == [0, 3]
    assert not found.held(to(0, follower=True)).any()
    assert not fleet(FAR, owner=ints(*[NOBODY] * 6)).held(to(0)).any()


def test_an_overdue_task_is_exchanged_for_the_nearest_one_that_stays() -> None:
    """Tasks overdue themselves or leaving for another member are not exchanged."""
    behind = {0: 0, 1: 890_000, 2: 899_000, 3: 100_000, 4: 500_000, 5: 300_000}
    target = to(0)
    target[2] = B
    found = fleet(FAR, {}, {"log": behind}, overdue={"log": [0, 1]}).another(target)
    assert np.flatnonzero(found != target).tolist() == [0, 4]
    assert (found[0], found[4]) == (A, C)
    near = fleet(FAR, {}, FAR, overdue={"log": [0]})
    assert near.another(target).tolist() == target.tolist()


def test_each_overdue_task_is_exchanged_for_another_task() -> None:
    """Tasks 0 and 1 wait too long on c; task 2, the nearest, waits too long on b only."""
    near = {2: 890_000, 3: 500_000, 4: 100_000, 5: 400_000}
    reports: dict[str, Any] = {"overdue": {"log2": [0, 1]}, "overdue_b": {"log": [2]}}
    found = fleet(FAR, {}, {"log": near}, **reports).another(to(0, 1))
    assert found[:6].tolist() == [A, A, C, C, A, A]


def test_an_overdue_task_of_a_member_that_has_caught_up_is_not_exchanged() -> None:
    """The member lacks exactly the acceptable number of records."""
    almost = {"log": {0: 899_990, 1: 900_000}}
    target = to(0)
    for most, is_same in ((10, True), (9, False)):
        progress = fleet(FAR, {}, almost, overdue={"log": [0]}, acceptable_recovery_lag=most)
        assert (progress.another(target).tolist() == target.tolist()) is is_same


def test_only_a_position_beyond_a_known_end_is_disbelieved() -> None:
    """The owner of partitions 0 and 1 reports no end for partition 1; b is beyond the end of 0 and 3."""
    topics = ["t", "log"]
    ends, ahead = {0: 100, 2: 100, 3: 50}, {0: 100_101, 1: 900_000, 2: 100_100, 3: 100_051}
    owned = {"t": [0, 1, 2, 3], "log": [0, 1, 2, 3]}
    members = [
        Member("a", topics, actives=owned, generation=1, positions={"log": ends}),
        Member("b", topics, standbys={"log": range(4)}, generation=1, positions={"log": ahead}),
    ]
    made = plan(members, {"t": 4, "log": 4}, changelogs=["log"], warmups=WarmupPolicy())
    assert made.warmup_plan is not None
    assert made.warmup_plan.disbelieved == {"log": 2}


@pytest.mark.parametrize("junk", [np.array([1, 2]), "overdue", 5])
def test_a_report_of_overdue_tasks_that_is_no_mapping_reports_none(junk: Any) -> None:
    """The report comes from another member's metadata."""
    target = to(0)
    assert fleet(FAR, overdue=junk).another(target).tolist() == target.tolist()


# -- the next rounds -------------------------------------------------------------------------


def planned_warmups(
    progress: Progress, target: Ints, *, standbys: Any = None, far: Any = None
) -> Any:
    """Return the members with a warm-up and the awaited members, by task."""
    standby = np.full((12, 1), NOBODY, dtype=np.int64)
    for task, member in (standbys or {}).items():
        standby[task] = member
    owner = progress.previous.owner
    away = target != owner if far is None else np.isin(np.arange(12), far)
    found = progress.plan_warmups(owner, target, standby, away, {})
    return tuple(
        {t: m for t, m in enumerate(column.tolist()) if m != NOBODY}
        for column in (found.warmup, found.awaited)
    )


def test_a_far_task_gets_a_warm_up_unless_its_target_is_a_standby() -> None:
    """Both tasks are awaited; tasks with a near target and followers get no warm-up."""
    target = to(0, 1, 2)
    assert planned_warmups(fleet(FAR), target, standbys={1: C}, far=[0, 1]) == (
        {0: C},
        {0: C, 1: C},
    )
    assert planned_warmups(fleet(FAR), to(0, follower=True)) == ({}, {})


def test_a_task_without_an_owner_is_not_awaited() -> None:
    """The task moves to its target in this round."""
    assert planned_warmups(fleet(FAR, owner=ints(*[NOBODY] * 6)), to(0), far=[0]) == ({}, {})


def test_a_task_overdue_on_one_member_is_awaited_on_another() -> None:
    """On the member with the overdue report, only a standby is awaited: it may catch up later."""
    late = {"log": [0]}
    assert planned_warmups(fleet(FAR, overdue=late), to(0)) == ({}, {})
    assert planned_warmups(fleet(FAR, overdue=late), to(0), standbys={0: C}) == ({}, {0: C})
    assert planned_warmups(fleet(FAR, overdue=late), to(0, member=B)) == ({0: B}, {0: B})


def test_warm_ups_are_limited_on_a_member_and_in_the_group() -> None:
    """Begun warm-ups come first, then the warm-ups with the least lag."""
    near = {"log": {0: 1, 1: 500_000, 2: 700_000}}
    both = to(0, 1, 2)
    assert planned_warmups(fleet(FAR, {}, near, max_per_member=2), both)[0] == {1: C, 2: C}
    begun = ints(C, NOBODY, NOBODY, NOBODY, NOBODY, NOBODY)
    assert planned_warmups(fleet(FAR, {}, near, awaited=begun, max_per_member=2), both)[0] == {
        0: C,
        2: C,
    }
    elsewhere = ints(B, NOBODY, NOBODY, NOBODY, NOBODY, NOBODY)
    assert planned_warmups(fleet(FAR, {}, near, awaited=elsewhere, max_per_member=2), both)[0] == {
        1: C,
        2: C,
    }
    both[2] = B
    assert planned_warmups(fleet(FAR, {}, near, max_per_member=1), both)[0] == {1: C, 2: B}
    assert planned_warmups(fleet(FAR, {}, near, max_per_group=1), both)[0] == {1: C}


def test_each_log_without_any_state_is_compared_with_the_bound_alone() -> None:
    """Both logs are short enough to read from their start, although their sum is not."""
    ends = {"log": {0: 49}, "log2": {0: 30}}
    found = fleet(ends, acceptable_recovery_lag=1_000, acceptable_from_nothing=49)
    assert found.caught_up(0, ints(0), ints(C)).tolist() == [True]
    assert lag(found) == 79


@pytest.mark.parametrize(("own", "is_near"), [({"log": 40, "log2": 1}, True), ({"log": 40}, False)])
def test_a_member_without_any_state_of_one_log_has_not_caught_up(
    own: dict[str, int], is_near: bool
) -> None:
    """The total lag is small, but the complete log does not make up for the missing log."""
    ends = {"log": {0: 100}, "log2": {0: 50}}
    at = {topic: {0: offset} for topic, offset in own.items()}
    found = fleet(ends, {}, at, acceptable_recovery_lag=1_000, acceptable_from_nothing=49)
    assert found.caught_up(0, ints(0), ints(C)).tolist() == [is_near]


def test_a_member_at_its_limit_leaves_its_place_in_the_group_to_another_one() -> None:
    """Three tasks wait for c and one for b; c's copies lack the fewest records."""
    near = {"log": {0: 899_000, 1: 898_000, 2: 897_000}}
    both = to(0, 1, 2)
    both[3] = B
    progress = fleet(FAR, {}, near, max_per_member=1, max_per_group=2)
    assert planned_warmups(progress, both)[0] == {0: C, 3: B}


@pytest.mark.parametrize(("own", "is_far"), [({"log": 40, "log2": 1}, False), ({"log": 40}, True)])
def test_a_task_is_far_from_a_target_that_lacks_one_whole_log(
    own: dict[str, int], is_far: bool
) -> None:
    """The lag alone would be acceptable; a task that stays is far from nobody."""
    ends = {"log": {0: 100, 1: 100}, "log2": {0: 50, 1: 50}}
    at = {topic: {0: offset, 1: offset} for topic, offset in own.items()}
    found = fleet(ends, {}, at, acceptable_recovery_lag=1_000, acceptable_from_nothing=49)
    owner = found.previous.owner
    assert np.flatnonzero(found.far(owner, to(0))).tolist() == [0] * is_far
    assert not found.far(owner, owner).any()

"""The rule of warm-ups used by the checker, with hand-computed results."""

from __future__ import annotations

from dataclasses import replace

import pytest

from faust_assigner import Member
from faust_assigner.checks.reading import units_of
from faust_assigner.checks.waiting import PLAUSIBLE_GROWTH, WarmupRule
from faust_assigner.model import NOBODY
from faust_assigner.warmup import WarmupPolicy

END = 1_000_000
POLICY = WarmupPolicy(
    acceptable_recovery_lag=100, acceptable_from_nothing=10, max_per_member=2, max_per_group=3
)


def waiting(
    *at: int | None, end: int | None = END, before: int = 0, numbers: int = 4, **of_last: object
) -> WarmupRule:
    """Return a rule: member 0 owns all numbers up to ``end``, the other members are at ``at``."""
    topics = ("t", "log")
    places = range(numbers)
    members = [
        Member(
            f"m{m}",
            topics,
            positions=None if offset is None else {"log": dict.fromkeys(places, offset)},
        )
        for m, offset in enumerate((end, *at))
    ]
    members[-1] = replace(members[-1], **of_last)  # type: ignore[arg-type]
    units = units_of(members, dict.fromkeys(topics, numbers), frozenset({"log"}), frozenset())
    return WarmupRule(units, members, [[before] * numbers], POLICY)


@pytest.mark.parametrize(
    ("at", "is_far"),
    [
        (END, False),
        (END - 100, False),
        (END - 101, True),
        (END + PLAUSIBLE_GROWTH, False),
        (END + PLAUSIBLE_GROWTH + 1, True),
        (0, True),
        (None, False),
    ],
)
def test_a_member_is_far_beyond_the_acceptable_lag(at: int | None, is_far: bool) -> None:
    """A position too far beyond the end is invalid; a member without positions is not far."""
    assert waiting(at).is_far(0, 0, 1, 0) is is_far


@pytest.mark.parametrize(("end", "is_far"), [(10, False), (11, True), (None, False), (0, False)])
def test_a_member_without_state_is_far_from_a_longer_log(end: int | None, is_far: bool) -> None:
    """An owner without reported positions delays no task."""
    assert waiting(0, end=end).is_far(0, 0, 1, 0) is is_far
    assert not waiting(0).is_far(0, 0, 1, NOBODY)


def test_only_a_task_of_a_living_owner_waits_for_another_target() -> None:
    """An orphan moves at once, and a task on its target stays."""
    assert waiting(0).must_wait(0, 0, 1)
    assert not waiting(0).must_wait(0, 0, 0)
    assert not waiting(0, before=NOBODY).must_wait(0, 0, 1)
    assert not waiting(END).must_wait(0, 0, 1)


def complaints(
    rule: WarmupRule,
    target: list[int],
    warming: dict[int, list[int]],
    spares: dict[int, list[int]] | None = None,
) -> list[str]:
    """Return the complaints about a plan that keeps all numbers on member 0."""
    return rule.complaints(
        [[0] * len(target)],
        [target],
        {(0, p): held for p, held in (spares or {}).items()},
        {(0, p): who for p, who in warming.items()},
    )


def test_as_many_warm_ups_as_the_limits_allow_are_due() -> None:
    """The limits are two warm-ups on a member and three in the group."""
    one = waiting(0)
    assert complaints(one, [1, 1, 0, 0], {0: [1], 1: [1]}) == []
    assert complaints(one, [1, 1, 1, 0], {0: [1], 1: [1]}) == []
    assert complaints(one, [1, 1, 0, 0], {0: [1]}) == ["m1 has 1 warm-ups, 2 are possible"]
    assert complaints(one, [1, 1, 1, 0], {0: [1], 1: [1], 2: [1]}) == [
        "3 warm-ups, 3 on one member"
    ]
    two = waiting(0, 0)
    assert complaints(two, [1, 1, 2, 2], {0: [1], 1: [1], 2: [2]}) == []
    four = {0: [1], 1: [1], 2: [2], 3: [2]}
    assert complaints(two, [1, 1, 2, 2], four) == ["4 warm-ups, 2 on one member"]


def test_a_warm_up_elsewhere_than_at_the_target_is_a_fault() -> None:
    """A warm-up on a caught-up member or beside a standby is a fault too."""
    found = complaints(waiting(0, 0), [2, 0, 0, 0], {0: [1]})
    assert found[0] == "log-0 has warm-ups on [1], off its target"
    near = complaints(waiting(END), [1, 0, 0, 0], {0: [1]})
    assert near == ["log-0 has warm-ups on [1], off its target"]
    assert complaints(waiting(END), [1, 0, 0, 0], {}) == []
    beside = complaints(waiting(0), [1, 0, 0, 0], {0: [1]}, {0: [1]})
    assert beside == ["log-0 has warm-ups on [1], off its target"]
    assert complaints(waiting(0), [1, 0, 0, 0], {}, {0: [1]}) == []


def test_an_overdue_warm_up_is_not_due() -> None:
    """The overdue report counts only for the task and the member."""
    rule = waiting(0, overdue={"log": [0]})
    assert complaints(rule, [1, 0, 0, 0], {}) == []
    assert complaints(rule, [0, 1, 0, 0], {}) == ["m1 has 0 warm-ups, 1 are possible"]

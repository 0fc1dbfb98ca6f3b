"""Claims from before a stop, dated and contested: which member a task would go back to."""

from __future__ import annotations

from typing import Any

import pytest

from faust_assigner import Member, plan
from faust_assigner.model import Previous
from tests.scenarios.test_plans_of_record import letters

TOPICS = {"s": 6, "s-log": 6, "t": 6}


def resolved(*members: tuple[Any, ...]) -> Previous:
    """The last assignment of members a, b, ...: (generation, date, former claims, other claims)."""
    found = [
        Member(
            "abcdef"[n],
            list(TOPICS),
            generation=generation,
            former_generation=date,
            former_actives={topic: list(numbers) for topic, numbers in former.items()},
            **more,
        )
        for n, (generation, date, former, *rest) in enumerate(members)
        for more in (rest[0] if rest else {},)
    ]
    return plan(found, TOPICS, changelogs=["s-log"], replicas=1).previous


def shown(found: Previous) -> tuple[str, str, str]:
    """Owner, former owner and home of the six numbers."""
    return letters(found.owner[:6]), letters(found.former[:6]), letters(found.home[:6])


@pytest.mark.parametrize(
    ("a", "b", "found"),
    [
        # The newer date counts, although the other member has the newer generation.
        ((9, 3, {"s": [0, 1]}), (4, 5, {"s": [1, 2]}), ("......", ".bb...", "abb...")),
        # Of one date, both claims are void.
        ((5, 5, {"s": [0, 1]}), (5, 5, {"s": [1, 2]}), ("......", "a.b...", "a.b...")),
        # Without a date, the generation dates the claim; a date of zero is a date.
        ((6, None, {"s": [0, 1]}), (5, 5, {"s": [1, 2]}), ("......", "aab...", "aab...")),
        ((6, 0, {"s": [0, 1]}), (5, 5, {"s": [1, 2]}), ("......", ".bb...", "abb...")),
        # A later assignment than the stop: the member does not know the owners since then.
        ((6, 5, {"s": [0, 1]}), (5, 6, {"s": [4]}), ("......", "....b.", "aa..b.")),
        # The topics of a task vote, the newest date first.
        (
            (5, 5, {"s": [0], "s-log": [0], "t": [3]}),
            (5, 5, {"t": [0], "s": [3], "s-log": [4]}),
            ("......", "a..bb.", "a..bb."),
        ),
    ],
)
def test_a_task_goes_back_to_the_owner_of_the_newest_date(a: Any, b: Any, found: Any) -> None:
    """A former claim is a wish: without an owner it counts, with its own date."""
    assert shown(resolved(a, b)) == found


def test_an_owner_or_more_state_elsewhere_goes_before_a_former_owner() -> None:
    """The home is remembered for a task with an owner, too."""
    a = (5, 5, {"s": [0, 1, 2, 3]}, {"standbys": {"s-log": [3]}})
    b = (5, 4, {}, {"actives": {"s": [0], "s-log": [0], "t": [0]}, "standbys": {"s-log": [1, 3]}})
    found = resolved(a, b)
    assert shown(found) == ("b.....", "..aa..", "aaaa..")
    pairs = zip(found.copy_task.tolist(), letters(found.copy_member), strict=True)
    assert list(pairs) == [(1, "b"), (3, "a"), (3, "b")]
    assert letters(found.last_owner[:6]) == "b.aa.."


@pytest.mark.parametrize(
    ("generations", "owners"),
    [
        ((5, 4), "aab..."),
        ((4, 5), "abb..."),
        ((0, -1), "aab..."),
        ((-1, 0), "abb..."),
        ((-1, -1), "a.b..."),
        ((-7, -1), "a.b..."),
        ((True, 0), "abb..."),
        ((1 << 70, 5), "aab..."),
        ((1 << 70, 1 << 62), "a.b..."),
    ],
)
def test_a_number_belongs_to_the_claim_of_the_newest_generation(
    generations: tuple[int, int], owners: str
) -> None:
    """Zero is a generation, -1 is none; a value that is no generation counts as none."""
    a = (generations[0], None, {}, {"actives": {"s": [0, 1]}})
    b = (generations[1], None, {}, {"actives": {"s": [1, 2]}})
    found = resolved(a, b)
    assert shown(found) == (owners, "......", "......")
    lost = [one for one in ((1, "a"), (1, "b")) if owners[1] != one[1]]
    pairs = zip(found.copy_task.tolist(), letters(found.copy_member), strict=True)
    assert list(pairs) == lost
    assert not found.copy_was_standby.any()


def test_a_copy_counts_the_tables_it_has_and_is_no_spare_where_the_task_was_to_move() -> None:
    """A former owner has all tables; a file counts whatever its date."""
    members = [
        Member("a", ["s", "x", "y"], generation=5, actives={"s": [0, 1], "x": [0, 1], "y": [0]}),
        Member("b", ["s", "x", "y"], generation=3, actives={"s": [1]}, standbys={"x": [0, 1]}),
        Member(
            "c",
            ["s", "x", "y"],
            generation=5,
            standbys={"x": [0, 1], "y": [0, 0]},
            awaited={"x": [1], "y": [1]},
        ),
    ]
    found = plan(members, dict.fromkeys("sxy", 2), changelogs=["x", "y"], replicas=1).previous
    rows = zip(
        found.copy_task.tolist(),
        letters(found.copy_member),
        found.copy_logs.tolist(),
        found.copy_was_standby.tolist(),
        strict=True,
    )
    assert list(rows) == [
        (0, "b", 1, True),
        (0, "c", 2, True),
        (1, "b", 2, True),
        (1, "c", 1, False),
    ]
    assert (letters(found.owner), letters(found.awaited)) == ("aa", ".c")


def test_most_topics_of_a_task_win_and_of_equal_numbers_the_earliest_source() -> None:
    """The order of topics is sources by name, then changelogs by name."""
    claims = {
        "a": {"x": [0, 1], "y": [0, 2], "s": [3]},
        "b": {"s": [0, 1, 2], "y": [1], "x": [3]},
        "c": {"t": [1, 2, 3], "x": [2], "y": [3]},
    }
    members = [
        Member(name, ["s", "t", "x", "y"], generation=5, actives=held)
        for name, held in claims.items()
    ]
    found = plan(members, dict.fromkeys("stxy", 4), changelogs=["x", "y"]).previous
    assert letters(found.owner) == "abcc"

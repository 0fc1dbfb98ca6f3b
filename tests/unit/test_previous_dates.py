"""Whose claim counts by its date, and claims that count for nobody."""

from __future__ import annotations

from typing import Any

import pytest

from faust_assigner import Member, plan
from tests.unit.test_claims import Touchy


@pytest.mark.parametrize(
    ("first", "second", "owner"),
    [(-1, 0, 1), (0, -1, 0), (0, 1, 1), (-1, -1, -1), (0, 0, -1), (-5, 0, 1), (3, True, 0)],
)
def test_the_newer_of_two_claims_counts_and_0_is_newer_than_none(
    first: Any, second: Any, owner: int
) -> None:
    """Two claims of one date are both ignored; a truth value is no date."""
    members = [
        Member(name, ("t",), actives={"t": [0]}, generation=generation)
        for name, generation in (("a", first), ("b", second))
    ]
    assert plan(members, {"t": 2}).previous.owner.tolist() == [owner, -1]


@pytest.mark.parametrize("claimed", [[1], [0, 1], []])
def test_a_member_that_does_not_subscribe_owned_nothing(claimed: list[int]) -> None:
    """Not even a single partition that nobody else claims."""
    members = [
        Member("a", ("t",), generation=2),
        Member("b", ("u",), actives={"t": claimed, "u": [0]}, generation=3),
    ]
    found = plan(members, {"t": 2, "u": 1}, co_partitioned=[["t"], ["u"]])
    owners = {
        group.topics: owner.tolist()
        for group, owner in zip(found.groups, found.previous_owner, strict=True)
    }
    assert owners == {("t",): [-1, -1], ("u",): [1]}


def test_former_partitions_count_by_the_date_of_the_former_process() -> None:
    """The date of the member's own claims says nothing about them."""
    members = [
        Member("a", ("t",), former_actives={"t": [0, 1]}, generation=5, former_generation=1),
        Member("b", ("t",), former_actives={"t": [0]}, generation=2, former_generation=3),
    ]
    assert plan(members, {"t": 3}).previous.home.tolist() == [1, 0, -1]


def test_a_claim_under_a_name_that_is_no_text_is_not_looked_at() -> None:
    """It may raise any error when it is compared."""
    touchy: Any = {Touchy(): [0, 1], "clicks": [1]}
    found = plan(
        [Member("a", ("orders", "clicks"), actives=touchy, generation=1)],
        {"orders": 2, "clicks": 2},
    )
    assert found.previous.owner.tolist() == [-1, 0]

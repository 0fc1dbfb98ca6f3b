"""The worker that answers for a key, for each state, request and bound."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from faust_assigner.app.queries.decide import MOST_COPIES, Asked, Here, Step, Who, steps

OWNER, COPY = Step[str](Who.OWNER_HERE), Step[str](Who.COPY_HERE)
FRESH, OLD, COLD = Here(lag=3, age_s=4.0), Here(lag=3, age_s=6.0), Here()
ASKED, FORWARDED, CHANGING = Asked(), Asked(is_forwarded=True), Asked(changes_nothing=False)
BOUND_S = 5.0


def tried(
    here: Here,
    asked: Asked = ASKED,
    bound_s: float = BOUND_S,
    owner: str | None = "b",
    copies: tuple[str, ...] = (),
) -> list[str]:
    """Return the steps of worker a in short form."""
    found = steps(here, asked, bound_s, own="a", owner=owner, copies=copies)
    return [
        step.at or {Who.OWNER_HERE: "owner here", Who.COPY_HERE: "copy here"}[step.who]
        for step in found
    ]


@pytest.mark.parametrize("asked", [Asked(), FORWARDED, CHANGING])
def test_an_owner_that_is_sure_answers_itself(asked: Asked) -> None:
    """The directory may name the owner of the round before."""
    assert tried(Here(is_owner=True), asked, copies=("c",)) == ["owner here"]


def test_the_owner_comes_before_copies_and_the_copy_here_before_others() -> None:
    """Fresh rows come first; then the local copy saves a request."""
    assert tried(FRESH, copies=("a", "c", "b", "d")) == ["b", "copy here", "c", "d"]


@pytest.mark.parametrize("here", [OLD, COLD, Here(lag=0)])
def test_a_copy_that_is_too_old_or_of_unknown_age_is_not_read(here: Here) -> None:
    """A known small lag does not help."""
    assert tried(here, copies=("c",)) == ["b", "c"]


def test_a_bound_of_zero_allows_no_copy() -> None:
    """Not even a copy without lag passes."""
    assert not Here(lag=0, age_s=0.0).is_fresh(0.0)
    assert Here(lag=0, age_s=0.0).is_fresh(0.1)


def test_an_owner_that_restores_reads_its_copy_within_the_bound() -> None:
    """The owner was a standby before; a cold owner asks the workers with copies."""
    assert tried(FRESH, owner="a", copies=("c",)) == ["copy here", "c"]
    assert tried(COLD, owner="a", copies=("c",)) == ["c"]
    assert tried(COLD, owner="a") == []


def test_what_was_forwarded_goes_no_further() -> None:
    """Two workers with different directories would forward the request for ever."""
    assert tried(FRESH, FORWARDED, copies=("c",)) == ["copy here"]
    assert tried(COLD, FORWARDED, copies=("c",)) == []


def test_what_may_change_something_goes_to_the_owner_only() -> None:
    """A copy cannot take a write, and a failed worker may have done the write."""
    assert tried(FRESH, CHANGING, copies=("c",)) == ["b"]


def test_without_a_bound_no_copy_answers() -> None:
    """A bound of 0 is the default."""
    assert tried(Here(lag=0, age_s=0.0), bound_s=0.0, copies=("c",)) == ["b"]


def test_few_copies_are_asked() -> None:
    """Each worker may be slow, and the client waits."""
    assert tried(COLD, copies=tuple("cdefgh")) == ["b", *"cdefgh"[:MOST_COPIES]]
    assert tried(COLD, copies=("d", "b", "d", "a", "c", "e")) == ["b", "d", "c"], "each worker once"


@pytest.mark.parametrize(
    "case",
    [
        *itertools.product(
            (Here(is_owner=True), FRESH, OLD, COLD),
            (Asked(), FORWARDED, CHANGING),
            (0.0, BOUND_S),
            (None, "a", "b"),
            ((), ("a",), ("c", "b", "a")),
        )
    ],
)
def test_no_case_reads_what_must_not_be_read(case: Any) -> None:
    """An owner step needs an owner, copies need the bound, and no worker is asked twice."""
    here, asked, bound_s, owner, copies = case
    found = steps(here, asked, bound_s, own="a", owner=owner, copies=copies)
    assert (OWNER in found) == here.is_owner
    if COPY in found:
        assert asked.changes_nothing
        assert bound_s > 0
        assert here.age_s is not None
        assert here.age_s <= bound_s
    others = [step.at for step in found if step.who is Who.OTHER]
    assert "a" not in others
    assert len(set(others)) == len(others)
    assert not (asked.is_forwarded and others)


def test_a_copy_as_old_as_the_bound_is_fresh() -> None:
    """The bound itself is included."""
    for age_s, is_fresh in ((4.999, True), (5.0, True), (5.001, False), (0.0, True)):
        assert Here(lag=3, age_s=age_s).is_fresh(5.0) is is_fresh

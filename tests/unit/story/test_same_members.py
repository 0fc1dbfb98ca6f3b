"""Members with the name of another member, and moves beside decisions of other leaders."""

from __future__ import annotations

import pytest

from faust_assigner.story.decisions import Decision
from faust_assigner.story.incidents import Incident, is_same_member


def decision(*static: str, generation: int = 1, **names: str) -> Decision:
    """Return a decision with these members' names."""
    return Decision(
        decision_id=f"d{generation}",
        at=float(generation),
        generation=generation,
        session_timeout_s=None,
        names=names,
        static=frozenset(static),
        actives={},
    )


@pytest.mark.parametrize(
    ("before", "after", "is_same"),
    [
        (decision("a", a="x"), decision("b", b="x"), True),
        (decision(a="x"), decision("b", b="x"), False),
        (decision("a", a="x"), decision(b="x"), False),
        (decision("a", a="x"), decision("b", b="y"), False),
        (None, decision("b", b="x"), False),
    ],
)
def test_only_two_static_ids_of_one_name_are_the_same_member(
    before: Decision | None, after: Decision, is_same: bool
) -> None:
    """A dynamic member may have a host's name that a static member had."""
    assert is_same_member(before, "a", after, "b") is is_same
    assert is_same_member(before, "b", after, "b")


def test_members_of_an_incident_are_those_of_its_first_round() -> None:
    """A member that restarts in a later round has left before it."""
    before = decision("a", "s", a="x", s="y", d="z")
    first = decision("t", generation=2, t="y", n="w")
    second = decision("t", "b", generation=3, t="y", b="x", d="z")
    found = Incident(rounds=(first, second), before=before)
    assert found.restarted == {"s": "t"}
    assert (found.gone, found.came) == ({"a", "d"}, {"n"})

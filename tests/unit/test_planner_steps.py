"""What the planner passes on to its steps."""

from __future__ import annotations

from typing import Any

import pytest

from faust_assigner import Member, plan, planner


@pytest.mark.parametrize(
    ("replicas", "even_state", "seats"), [(0, False, 0), (1, False, 1), (2, True, 2), (9, True, 3)]
)
def test_state_is_evened_out_where_every_member_has_every_standby(
    monkeypatch: pytest.MonkeyPatch, *, replicas: int, even_state: bool, seats: int
) -> None:
    """Two standbys are on both other members of three; more than the members are no more."""
    asked: list[Any] = []
    promote = planner.promote

    def noted(*given: Any, **more: Any) -> Any:
        asked.append(more["even_state"])
        return promote(*given, **more)

    monkeypatch.setattr(planner, "promote", noted)
    members = [Member(name, ("t", "log")) for name in "abc"]
    found = plan(members, {"t": 4, "log": 4}, replicas=replicas, changelogs=["log"])
    assert asked == [even_state]
    assert (found.replicas, found.flat_standby.shape) == (seats, (4, seats))
    assert sum(len(p) for name in "abc" for p in found.standbys(name).values()) == 4 * min(seats, 2)


@pytest.mark.parametrize("capacity", [0, -1.0, float("inf"), float("nan"), "1", None])
def test_a_capacity_is_a_number_between_nothing_and_everything(capacity: Any) -> None:
    """The member is named."""
    with pytest.raises(planner.PlanInputError, match="'b': capacity must be above 0"):
        plan([Member("a", ("t",)), Member("b", ("t",), capacity=capacity)], {"t": 1})


@pytest.mark.parametrize("topics", ["t", b"t", 7])
def test_a_name_is_no_collection_of_names(topics: Any) -> None:
    """Its letters would be the topics."""
    with pytest.raises(planner.PlanInputError, match="topics must be a collection of names"):
        plan([Member("a", topics)], {"t": 1})
    if not isinstance(topics, int):
        for name in ("changelogs", "weightless"):
            options: Any = {name: topics}
            with pytest.raises(planner.PlanInputError, match=f"^{name} must be a collection"):
                plan([Member("a", ("t",))], {"t": 1}, **options)

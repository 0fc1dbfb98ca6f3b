"""Which members get the tasks beyond the floor, and what the planner tells the promotion about copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from faust_assigner import Member, plan, planner
from faust_assigner.actives.counts import optimal_counts


def extras(held: list[int], warm: list[int], home: list[int], *, size: int = 4) -> list[int]:
    """The counts of a group, for members that may take every task."""
    sizes = np.full(1, size, dtype=np.int64)
    rows = [np.array([one], dtype=np.int64) for one in (held, warm, home)]
    allowed = np.ones((1, len(held)), dtype=np.bool_)
    found = optimal_counts(sizes, allowed, rows[0], rows[1], np.ones(len(held)), rows[2])
    return found[-1].tolist()


@pytest.mark.parametrize(
    ("held", "warm", "home", "counts"),
    [
        ([0, 0, 0], [0, 0, 0], [0, 0, 0], [2, 1, 1]),
        ([0, 0, 0], [1, 0, 2], [0, 0, 0], [1, 1, 2]),
        ([0, 0, 0], [1, 2, 3], [0, 0, 0], [1, 1, 2]),
        ([1, 1, 1], [1, 0, 0], [1, 2, 1], [1, 2, 1]),
        ([1, 2, 1], [9, 0, 0], [1, 0, 2], [1, 2, 1]),
        ([2, 2, 0], [0, 0, 0], [0, 2, 0], [1, 2, 1]),
        ([1, 1, 2], [1, 2, 0], [0, 0, 0], [1, 1, 2]),
    ],
)
def test_the_task_beyond_the_floor_goes_to_a_stay_a_home_a_copy_and_then_the_first(
    held: list[int], warm: list[int], home: list[int], counts: list[int]
) -> None:
    """Each reason counts only beyond the floor of one task."""
    assert extras(held, warm, home) == counts


@pytest.mark.parametrize(("replicas", "is_even"), [(0, False), (1, False), (2, True), (5, True)])
def test_state_is_evened_out_only_if_all_members_have_copies(
    replicas: int, *, is_even: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three members hold all state with two standbys; more standbys than members are three."""
    told: dict[str, Any] = {}
    real = planner.promote

    def promote(*given: Any, **more: Any) -> Any:
        told.update(more)
        return real(*given, **more)

    monkeypatch.setattr(planner, "promote", promote)
    members = [Member(name, ["s", "log"]) for name in "cab"]
    made = plan(members, {"s": 3, "log": 3}, changelogs=["log"], replicas=replicas)
    assert told["even_state"] is is_even
    assert (made.member_ids, made.replicas) == (("a", "b", "c"), min(replicas, 3))

"""The group of the newest decision, planned again as the leader planned it."""

from __future__ import annotations

from faust_assigner import plan
from faust_assigner.ledger import Row
from faust_assigner.pipeline.ledgers.current import current_here
from faust_assigner.weights.trial import score


def rows(owners: str, *, weightless: str) -> list[Row]:
    """A decision over ``a`` and ``b``: three orders by their ``owners``, and the topic ``lead`` on ``a``."""
    said = {
        "group_id": "shop",
        "decision_id": "d",
        "ts": 1,
        "config": {"weightless": weightless},
        "members": [{"member_id": m, "rack": None, "capacity": 1.0} for m in "ab"],
    }
    placed = [("orders", p, m) for p, m in enumerate(owners)] + [("lead", 0, "a")]
    return [Row("decision", said)] + [
        Row(
            "assignment",
            {
                "group_id": "shop",
                "decision_id": "d",
                "topic": topic,
                "partition": p,
                "role": "active",
                "member_id": m,
            },
        )
        for topic, p, m in placed
    ]


def test_what_weighs_nothing_moves_nothing_when_planned_again() -> None:
    """2 and 1 of three orders beside the idle topic is even; counted as work it would not be."""
    (idle,), (working,) = (current_here(rows("aab", weightless=said)) for said in ("lead", ""))
    assert (idle.weightless, working.weightless) == (("lead",), ())
    assert plan(idle.members, idle.partitions, weightless=idle.weightless).moves == 0
    assert plan(working.members, working.partitions, weightless=working.weightless).moves == 1


def test_a_trial_of_weights_weighs_no_idle_topic() -> None:
    """Neither in its plans nor in its loads."""
    (idle,) = current_here(rows("aab", weightless="lead"))
    found = score(idle.members, idle.partitions, {("lead", 0): 50.0}, weightless=idle.weightless)
    assert (found.counted_moves, found.before, found.counted) == (0, 4 / 3, 4 / 3)

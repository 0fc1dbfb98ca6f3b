"""The group of the newest decision, planned again as the leader planned it."""

from __future__ import annotations

from faust_assigner import plan
from faust_assigner.ledger import Row
from faust_assigner.pipeline.ledgers.current import current_here
from faust_assigner.weights.trial import score


def rows(owners: str, *, weightless: str = "", name: str = "d", ts: int = 1) -> list[Row]:
    """A decision over ``a`` and ``b``: three orders by their ``owners``, and the topic ``lead`` on ``a``."""
    said = {
        "group_id": "shop",
        "decision_id": name,
        "ts": ts,
        "config": {"weightless": weightless},
        "members": [{"member_id": m, "rack": None, "capacity": 1.0} for m in "ab"],
    }
    placed = [("orders", p, m) for p, m in enumerate(owners)] + [("lead", 0, "a")]
    return [Row("decision", said)] + [
        Row(
            "assignment",
            {
                "group_id": "shop",
                "decision_id": name,
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


def test_older_decisions_have_their_own_placements_newest_first() -> None:
    """By time, whatever the order of the lines; of a repeated decision the later line counts."""
    lines = [
        *rows("aaa", name="old", ts=1),
        *rows("bbb", name="new", ts=3),
        *rows("aab", name="middle", ts=2),
        *rows("aaa", name="old", ts=0),
    ]
    found = current_here(lines, 2)
    assert [each.decision_id for each in found] == ["new", "middle"]
    owners = [{m.member_id: m.actives.get("orders") for m in each.members} for each in found]
    assert owners == [{"a": None, "b": {0, 1, 2}}, {"a": {0, 1}, "b": {2}}]
    assert [each.at for each in current_here(lines, 9)] == [3, 2, 1]

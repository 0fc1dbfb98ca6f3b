"""The group of the newest decision, planned again with the leader's input."""

from __future__ import annotations

from faust_assigner import plan
from faust_assigner.ledger import Row
from faust_assigner.pipeline.ledgers.current import current_here, current_of
from faust_assigner.weights.trial import score


def rows(owners: str, *, weightless: str = "", name: str = "d", ts: int = 1) -> list[Row]:
    """Return a decision over ``a`` and ``b``: three orders by ``owners``, and ``lead`` on ``a``."""
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
    """2 and 1 of three orders beside the idle topic is even; with the topic's load it is not."""
    (idle,), (working,) = (current_here(rows("aab", weightless=said)) for said in ("lead", ""))
    assert (idle.weightless, working.weightless) == (("lead",), ())
    assert plan(idle.members, idle.partitions, weightless=idle.weightless).moves == 0
    assert plan(working.members, working.partitions, weightless=working.weightless).moves == 1


def test_a_trial_of_weights_weighs_no_idle_topic() -> None:
    """The topic is neither in the plans nor in the loads."""
    (idle,) = current_here(rows("aab", weightless="lead"))
    found = score(idle.members, idle.partitions, {("lead", 0): 50.0}, weightless=idle.weightless)
    assert (found.counted_moves, found.before, found.counted) == (0, 4 / 3, 4 / 3)


def test_older_decisions_have_their_own_placements_newest_first() -> None:
    """Time decides, not the order of lines; of a repeated decision the later line counts."""
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


def placed(topic: str, partition: int, member_id: str, role: str = "active") -> dict[str, object]:
    """Return a placement."""
    return {"topic": topic, "partition": partition, "member_id": member_id, "role": role}


def test_members_keep_their_rack_their_instance_and_their_capacity() -> None:
    """A trial of weights without these fields would plan for another group."""
    (row, *_) = rows("a")
    members = [
        {"member_id": "b", "rack": "r2", "capacity": 2.0, "instance_id": "i-b"},
        {"member_id": "a", "rack": "r1", "capacity": 0.5},
    ]
    found = current_of({**row.values, "members": members}, [])
    assert [(m.member_id, m.rack_id, m.instance_id, m.capacity) for m in found.members] == [
        ("a", "r1", None, 0.5),
        ("b", "r2", "i-b", 2.0),
    ]


def test_the_count_of_a_topic_is_above_its_highest_number_in_any_order_of_the_rows() -> None:
    """Spark returns rows in any order."""
    (row, *_) = rows("a")
    found = current_of(row.values, [placed("t", 2, "a"), placed("t", 0, "b"), placed("t", 1, "a")])
    assert found.partitions == {"t": 3}
    lone = current_of(row.values, [placed("t", 4, "a"), placed("t", 4, "a")])
    assert (lone.partitions, dict(lone.members[0].actives)) == ({"t": 5}, {"t": {4}})


def test_a_warm_up_is_a_copy_of_a_changelog() -> None:
    """A table without standbys and with its own changelog name is known by its warm-ups alone."""
    (row, *_) = rows("a")
    found = current_of(
        row.values, [placed("own-name", 0, "a"), placed("own-name", 0, "b", "warmup")]
    )
    assert found.changelogs == ("own-name",)
    assert [dict(m.standbys) for m in found.members] == [{}, {"own-name": {0}}]


def test_a_topic_with_standbys_or_with_the_suffix_of_changelogs_is_a_changelog() -> None:
    """A table may use another changelog name or no standbys."""
    (row, *_) = rows("a")
    found = current_of(
        row.values,
        [
            placed("orders", 0, "a"),
            placed("own-name", 0, "a"),
            placed("own-name", 0, "b", "standby"),
            placed("shop-counts-changelog", 0, "a"),
        ],
    )
    assert found.changelogs == ("own-name", "shop-counts-changelog")
    assert [dict(m.standbys) for m in found.members] == [{}, {"own-name": {0}}]

"""Figures of plans without tasks, without tables, and with followers alone on a member."""

from __future__ import annotations

from faust_assigner import Member, plan
from faust_assigner.views.report import MEANINGS, report

ZEROS = (
    "idle_members",
    "tasks",
    "load_min",
    "load_max",
    "group_spread",
    "moves",
    "moves_minimum",
    "cold_moves",
    "promoted",
    "off_target",
)


def test_a_plan_without_tasks_has_zeros_and_no_groups() -> None:
    """Figures of racks, standbys and weights do not apply."""
    found = report(plan([Member("b", ("t",)), Member("a", ())], {}, replicas=2))
    wanted = {**dict.fromkeys(MEANINGS), **dict.fromkeys(ZEROS, 0), "members": 2, "groups": []}
    assert dict(found) == wanted
    assert str(found).splitlines() == [
        f"{name:<26}{2 if name == 'members' else 0:>10}  {MEANINGS[name]}"
        for name in MEANINGS
        if found[name] is not None
    ]


def test_standbys_of_a_plan_without_tables_do_not_apply() -> None:
    """A member without subscriptions is neither idle nor part of a spread."""
    found = report(plan([Member("b", ("t",)), Member("a", ())], {"t": 2}, replicas=2))
    told = {name: value for name, value in found.items() if value}
    assert told == {
        "members": 2,
        "tasks": 2,
        "load_min": 2,
        "load_max": 2,
        "groups": [{"id": 2, "topics": ("t",), "partitions": 2, "min": 2, "max": 2}],
    }
    assert found["standby_max"] is None
    assert found["worst_after_member_death"] is None


def test_the_standbys_of_a_table_without_replicas_do_not_apply() -> None:
    """The table alone has no standby to count."""
    members = [Member(name, ("t", "log")) for name in "ab"]
    found = report(plan(members, {"t": 2, "log": 2}, replicas=0, changelogs=("log",)))
    assert (found["standby_min"], found["standby_fresh"], found["load_max"]) == (None, None, 1)

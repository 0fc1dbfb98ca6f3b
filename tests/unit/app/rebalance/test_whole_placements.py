"""A plan as a placement, and the columns of its copies in the directory."""

from __future__ import annotations

import numpy as np

from faust_assigner import Member, plan
from faust_assigner.app.rebalance.placement import Placement, directory_of, of_plan
from faust_assigner.model import NOBODY

COUNTS = {"orders": 4, "log": 4, "clicks": 3, "rates": 2}


def test_a_plan_becomes_a_placement_by_member_and_topic() -> None:
    """Sources have no standbys, a member without partitions is included, and groups keep ids."""
    owned = {"b": [0, 3], "a": [1, 2]}
    spare = {"b": [1], "a": [0, 3], "c": [2]}
    members = [
        Member(
            name,
            ["orders", "log", *(["clicks"] if name == "a" else ["rates"])],
            actives={"orders": owned.get(name, []), "log": owned.get(name, [])},
            standbys={"log": spare[name]},
            generation=3,
        )
        for name in "bac"
    ]
    made = plan(
        members,
        COUNTS,
        replicas=1,
        changelogs={"log", "rates"},
        previous_ids={"orders": 7, "log": 7, "rates": 4, "clicks": 9},
    )
    found = of_plan(made)
    assert found.member_ids == made.member_ids == ("a", "b", "c")
    assert found.actives == {m: made.actives(m) for m in "abc"}
    assert found.standbys == {m: made.standbys(m) for m in "abc"}
    assert list(found.actives) == list(found.standbys) == ["a", "b", "c"]
    assert {t for topics in found.standbys.values() for t in topics} == {"log", "rates"}
    assert found.actives["a"]["clicks"] == [0, 1, 2]
    for topics in found.actives.values():
        assert topics.get("orders") is topics.get("log"), "topics of a group share their lists"
    assert found.group_ids == {"orders": 7, "log": 7, "rates": 4, "clicks": 9}
    assert found.owners.keys() == COUNTS.keys()
    for topic, owner in found.owners.items():
        assert owner.size == COUNTS[topic]
        for partition, m in enumerate(owner.tolist()):
            assert partition in found.actives[found.member_ids[m]][topic]
    assert found.owners["orders"] is found.owners["log"]


def test_copies_fill_the_first_free_column_of_their_partition() -> None:
    """Each column names at most one copy of a partition, and none is longer than needed."""
    standbys = {
        "a": {"log": [0, 1], "rates": [1]},
        "b": {"log": [0]},
        "c": {"log": [1, 3], "rates": [0]},
        "d": {"log": [0, 1, 3]},
        "e": {},
    }
    owner = np.array([4, 4, NOBODY, 4])
    placement = Placement(
        tuple("abcde"),
        {m: {} for m in "abcde"},
        standbys,
        {"log": owner, "rates": np.array([4, 4])},
        {"log": 0, "rates": 1},
    )
    urls = {m: f"http://{m}" for m in "abcde"}
    logs = frozenset({"log", "rates"})
    found = directory_of(placement, urls, {}, logs, {"rates", "gone"}, with_standbys=True)
    assert found.urls == ("http://e", "http://a", "http://b", "http://c", "http://d")
    assert {t: [c.tolist() for c in columns] for t, columns in found.standbys.items()} == {
        "log": [[1, 1, NOBODY, 3], [2, 3, NOBODY, 4], [4, 4, NOBODY, NOBODY]],
        "rates": [[3, 1]],
    }
    assert (found.changelogs, found.globals_) == (logs, {"rates"})
    assert {t: owner.tolist() for t, owner in found.owners.items()} == {
        "log": [0, 0, NOBODY, 0],
        "rates": [0, 0],
    }

"""Rows of ledgers decoded whole, and stories of members, rounds and restores with a second life."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from faust_assigner.story.again import (
    Outcome,
    Remedy,
    _all_claims,
    _try_change,
    _with_one_more_standby,
)
from faust_assigner.story.causes import cause_of, round_text
from faust_assigner.story.decisions import (
    Active,
    Decision,
    Placed,
    decision_of,
    names_of,
    shared_hosts,
)
from faust_assigner.story.incidents import Incident, moves_of, recoveries_of
from faust_assigner.story.read import NothingKnown, Story, read
from faust_assigner.story.tell import _answer_for_move, _unmoved_headline, why_partition
from tests.unit.story import test_incidents as made
from tests.unit.story.ledgers import told
from tests.unit.story.test_incidents import P0, P1, active, asked, decision, moved, story

TS = datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)


def row(**more: Any) -> dict[str, Any]:
    """Return a decision's row: a static and two dynamic members, two of them on one host."""
    base: dict[str, Any] = {
        "decision_id": "d7",
        "ts": TS,
        "generation": 7,
        "trigger": "leave+join",
        "session_timeout_s": 33.0,
        "members": [
            {"member_id": "m1", "instance_id": "shop-1"},
            {"member_id": "m2", "instance_id": ""},
            {"member_id": "m3", "instance_id": None},
            {"member_id": "m4"},
        ],
        "cause": {
            "leaving": ["m3"],
            "follows": True,
            "completes": "join",
            "urls": {"m1": "http://one:1", "m2": "http://two:2/", "m3": "http://two:3"},
        },
        "before": {
            "generation": "6",
            "urls": ["http://one:9", "http://two:2", "http://gone:5"],
            "instances": ["shop-1", "", ""],
            "owners": [
                {"topics": ["t", "log"], "partitions": ["0-1", "", "2"]},
                {"topics": ["u"], "partitions": ["", "4", ""]},
            ],
        },
    }
    return base | more


def owner(member_id: str) -> Active:
    """Return an owner that the next leader remembers."""
    return Active(member_id=member_id, moved=False, cold=False, standby_hit=False, rule=None)


def test_a_decision_has_all_fields_of_its_row_and_of_the_round_before() -> None:
    """A static member keeps its id, a dynamic member that of its URL; a departed one has its name."""
    placed = Placed()
    base = {"topic": "t", "partition": 0, "role": "standby"}
    for member in ("m2", "m1", "m2"):
        placed.add({**base, "member_id": member})
    placed.add(
        {
            **base,
            "role": "active",
            "member_id": "m4",
            "moved": True,
            "cold": False,
            "standby_hit": True,
            "rule": "even",
            "rejected": ["m1", 3],
        }
    )
    assert decision_of(row(), placed, {"two"}) == Decision(
        decision_id="d7",
        at=TS.timestamp(),
        generation=7,
        trigger="leave+join",
        session_timeout_s=33.0,
        names={"m1": "shop-1", "m2": "two:2", "m3": "two:3", "m4": "m4"},
        static=frozenset({"m1"}),
        leaving=frozenset({"m3"}),
        follows=True,
        completes="join",
        asked=None,
        actives={
            P0: Active(
                member_id="m4",
                moved=True,
                cold=False,
                standby_hit=True,
                rule="even",
                rejected=("m1", "3"),
            )
        },
        standbys={P0: ("m2", "m1")},
        before=Decision(
            decision_id="before d7",
            generation=6,
            session_timeout_s=33.0,
            names={"m1": "shop-1", "m2": "two:2", "gone": "gone"},
            static=frozenset({"m1"}),
            actives={
                **{(topic, n): owner("m1") for n in (0, 1) for topic in ("t", "log")},
                **{(topic, 2): owner("gone") for topic in ("t", "log")},
                ("u", 4): owner("m2"),
            },
        ),
    )


def test_a_row_without_optional_values_has_their_defaults() -> None:
    """An older version wrote neither the cause nor the round before."""
    found = decision_of(row(cause=None, before=None), Placed(), ())
    names = {"m1": "shop-1", "m2": "m2", "m3": "m3", "m4": "m4"}
    assert (found.names, found.before) == (names, None)
    assert (found.leaving, found.follows, found.completes) == (frozenset(), False, "")
    empty = decision_of(row(cause={"completes": None}, before=None), Placed(), ())
    assert (empty.completes, empty.follows) == ("", False)


OWNERS = row()["before"]["owners"]


@pytest.mark.parametrize(
    ("damage", "is_decoded"),
    [
        ({"instances": []}, True),
        ({"instances": None}, True),
        ({"instances": ["shop-1"]}, False),
        ({"generation": "x"}, False),
        ({"owners": [{"topics": ["t"], "partitions": ["", "", "", "7"]}]}, False),
        ({"owners": [{"topics": ["t"]}]}, False),
        ({"owners": [{"topics": ["t"], "partitions": ["x"]}]}, False),
        ({"owners": 3}, False),
    ],
)
def test_a_round_before_of_another_form_is_left_out(
    damage: Mapping[str, Any], is_decoded: bool
) -> None:
    """The decision itself is decoded; dynamic groups have no instances."""
    found = decision_of(row(before={**row()["before"], **damage}), Placed(), ())
    assert found.generation == 7
    assert (found.before is not None) is is_decoded
    without = {name: value for name, value in row()["before"].items() if name != "instances"}
    assert decision_of(row(before=without), Placed(), ()).before is None


def test_a_dynamic_member_of_the_round_before_is_known_by_its_url_alone() -> None:
    """Its host may be the instance id of a static member."""
    before = {**row()["before"], "urls": ["http://shop-1:9"], "instances": [""]}
    before["owners"] = [{"topics": ["t"], "partitions": ["3"]}]
    members = [{"member_id": "m1", "instance_id": "shop-1"}]
    found = decision_of(row(before=before, members=members), Placed(), ()).before
    assert found is not None
    assert {place: one.member_id for place, one in found.actives.items()} == {("t", 3): "shop-1"}
    assert found.static == frozenset()


def test_a_host_is_shared_if_two_of_its_ports_occur_in_any_round() -> None:
    """A port that occurs in several rounds is one worker."""
    urls = [{"a": "http://one:1", "b": "http://two:1"}, {"a": "http://one:1"}]
    rows: list[Any] = [{"cause": {"urls": some}} for some in urls]
    assert shared_hosts(rows) == frozenset()
    rows.append({"before": {"urls": ["http://two:2"]}})
    assert shared_hosts(rows) == {"two"}
    mine = {"members": [{"member_id": "b"}, {"member_id": "c"}], **rows[0]}
    assert names_of(mine, {"two"}) == {"a": "one", "b": "two:1", "c": "c"}


# -- incidents ------------------------------------------------------------------------------------


def test_the_lines_of_an_incident_with_three_rounds() -> None:
    """Only the first round has the cause and its moves; warm moves are counted."""
    before = decision(1, {0: "a", 1: "b", 2: "c"}, members="abc")
    first = decision(2, {0: "b", 1: "b", 2: "b"}, members="ab")
    first.actives[("t", 2)] = active("b", standby_hit=False)  # type: ignore[index]
    rounds = (first, decision(3, {0: "a"}, members="ab"), decision(4, {0: "b"}, members="abd"))
    incident = Incident(rounds=rounds, before=before)
    lines = [round_text(story(before, *rounds), incident, one) for one in rounds]
    second = "second of the incident's rounds: revoked partitions are assigned"
    gone = "C left without handing over: killed, cut off, or stopped with FAUST_ASSIGNER_LEAVE_S=0"
    assert lines == [
        f"generation 2 (2 members): {gone}; 2 partitions move, 1 of them to a copy",
        f"generation 3 (2 members): {second}",
        f"generation 4 (3 members): {second}",
    ]
    alone = Incident(rounds=(decision(5, members="ab"),), before=rounds[1])
    assert round_text(story(*rounds), alone, alone.first) == (
        "generation 5 (2 members): a member requested a round, or came back to it"
    )


def test_only_members_that_are_gone_have_handed_over() -> None:
    """A member may announce its stop in a later round of the incident, or come back."""
    before = decision(1, members="abc")
    first = decision(2, members="ab")
    later = decision(3, members="ab", leaving=frozenset({"b", "c"}))
    incident = Incident(rounds=(first, later), before=before)
    assert cause_of(story(before, first, later), incident) == (
        "C stopped (SIGTERM) and handed over"
    )


def test_a_restarted_static_owner_has_not_moved_from_its_remembered_id() -> None:
    """The owner of the round before is compared in that round, not in an older one."""
    static = {"static": frozenset({"a", "a2"})}
    old = decision(1, {0: "b"}, **static)
    remembered = decision(2, {0: "a"}, **static)
    names = {"a2": "A", "b": "B"}
    now = decision(4, {0: "a2"}, names=names, before=remembered, **static)
    found = [Incident(rounds=(old,), before=None), Incident(rounds=(now,), before=remembered)]
    assert [(one.was, one.to) for one in moves_of(P0, found)] == [(None, "b")]


def test_a_restore_is_known_by_the_members_id_or_by_its_name() -> None:
    """A static member may have a new id; another member's restore does not count."""
    base = decision(1, {0: "a"})
    rounds = (decision(2, {0: "b"}), decision(3, {0: "b"}))
    after = decision(9, names={"b": "B", "b9": "B", "x": "X"})
    incident = Incident(rounds=rounds, before=base)
    move = replace(moved(base, rounds[0]), incident=incident)
    mine = [
        made.recovery(place=P0, decision_id="d2", member_id="b"),
        made.recovery(place=P0, decision_id="d3", member_id="b9"),
    ]
    others = [
        made.recovery(place=P0, decision_id="d2", member_id="x"),
        made.recovery(place=P1, decision_id="d2", member_id="b"),
        made.recovery(place=P0, decision_id="d9", member_id="b"),
    ]
    known = story(base, *rounds, after, recoveries=[*mine, *others])
    assert list(recoveries_of(known, move, ["t"], 0)) == mine
    unnamed = Story(group="shop", decisions=(), recoveries=(mine[0], others[0]))
    assert list(recoveries_of(unnamed, move, ["t"], 0)) == [mine[0]]


# -- answers --------------------------------------------------------------------------------------


def test_the_time_of_a_restore_counts_from_the_deciding_round() -> None:
    """The first round of the incident may be earlier."""
    base, first, second = decision(1, {0: "a"}), decision(2, {0: "a"}), decision(3, {0: "b"})
    incident = Incident(rounds=(first, second), before=base)
    move = replace(moved(base, second), incident=incident, origin=incident)
    times = [(190.0, 200.0), (180.5, 207.5)]
    restored = [
        made.recovery(place=P0, decision_id="d3", member_id="b", started=a, ended=b)
        for a, b in times
    ]
    known = story(base, first, second, recoveries=restored)
    assert _answer_for_move(known, move, P0, "t/0").restored_s == 27.5


def test_a_partition_that_has_not_moved_is_told_with_its_last_owner() -> None:
    """A partition that the last decision does not place is not in the ledger."""
    known = story(decision(4, {0: "a"}), decision(5, {0: "b", 1: "a"}))
    assert _unmoved_headline(known, P0, "t/0").startswith(
        "B owns t/0, which has not moved since before generation 4, the ledger's first."
    )
    gone = story(decision(4, {0: "a"}), decision(5, {1: "a"}))
    assert _unmoved_headline(gone, P0, "t/0") == (
        "no decision in the ledger places t/0; the last decision places t/1; the ledger has 2 decisions "
        "of the group shop"
    )
    assert _unmoved_headline(gone, ("u", 0), "u/0").startswith(
        "no decision in the ledger places u/0; the last decision places t/1;"
    )
    with pytest.raises(NothingKnown, match="no decision in the ledger places t/9"):
        why_partition(known, ("t", 9))


def test_a_group_whose_decisions_are_in_no_ledger_does_not_count() -> None:
    """Its members' recoveries alone tell no story."""
    found = told().recover("m1", "orders", 0, source="replay", records=5, seconds=1.0)
    lines = [line for some in found.ledgers.values() for line in some]
    other = [line.replace(b'"shop"', b'"other"') for line in lines if b'"recovery"' in line]
    assert other
    assert read([*lines, *other]).group == "shop"
    with pytest.raises(NothingKnown, match="no decision in the ledger of the group other"):
        read([*lines, *other], "other")


# -- planning again -------------------------------------------------------------------------------


def test_one_more_standby_is_one_more_than_the_move_had() -> None:
    """The earlier round may have had fewer; a member's own copies stay."""
    before = decision(1, asked=asked(replicas=0))
    made_ = _with_one_more_standby(moved(before, decision(2)), asked(replicas=1))
    assert made_ is not None
    assert made_.replicas == 2
    earlier = replace(asked(replicas=0), replicas=2).plan()
    member = replace(asked().members[1], standbys={"log": [1], "old": [7, 3]})
    copies = {topic: list(numbers) for topic, numbers in earlier.standbys("b").items()}
    assert _all_claims(member, earlier) == {
        "log": sorted({1, *copies.get("log", ())}),
        "old": [3, 7],
    }


def test_a_first_placement_has_no_owner_to_stay_with() -> None:
    """A change then only makes a cold placement warm."""
    move = replace(moved(decision(1), decision(2)), was=None)
    was = Outcome(owner="b", is_cold=True)
    known = story(decision(1), decision(2))
    plan = asked()
    found = _try_change(known, "a change", lambda: plan, P0, move, was)
    assert found == Remedy(change="a change", then="it goes to A, which has its state")
    assert (
        _try_change(known, "a change", lambda: plan, P0, move, replace(was, is_cold=False)) is None
    )
    assert _try_change(known, "a change", lambda: None, P0, move, was) is None
    stays = _try_change(known, "a change", lambda: plan, P0, replace(move, was="a"), was)
    assert stays == Remedy(change="a change", then="it stays with A")

"""Hand-made rounds and incidents: departed and new members, and the round that moved a task."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest

from faust_assigner.ledger import encode
from faust_assigner.ledger.tables import TABLES
from faust_assigner.model import Member
from faust_assigner.story import again
from faust_assigner.story.again import (
    _member_as_before,
    _outcome,
    _possible_changes,
    _with_one_more_standby,
    _without_newcomers,
    remedies,
)
from faust_assigner.story.causes import cause_of
from faust_assigner.story.decisions import (
    Active,
    Decision,
    Placed,
    Recovery,
    names_of,
    recovery_of,
    shared_hosts,
)
from faust_assigner.story.incidents import (
    Incident,
    Moved,
    changed,
    incidents,
    is_same_member,
    members_of,
    moves_of,
    recoveries_of,
)
from faust_assigner.story.read import Story, read
from faust_assigner.story.tell import _member_events, why_member, why_partition
from faust_assigner.warmup import WarmupPolicy
from faust_assigner.wire.plan_input import PlanInput

P0, P1 = ("t", 0), ("t", 1)


def active(member_id: str, **more: Any) -> Active:
    """Return an owner with a copy of the state."""
    base = {"moved": True, "cold": False, "standby_hit": True, "rule": None}
    return Active(member_id=member_id, **base | more)


def decision(
    generation: int,
    owners: Mapping[int, str] | None = None,
    *,
    members: Collection[str] = ("a", "b"),
    **more: Any,
) -> Decision:
    """Return a round, a minute after its predecessor; a member's name is its id in capitals."""
    base: dict[str, Any] = {
        "decision_id": f"d{generation}",
        "at": 60.0 * generation,
        "generation": generation,
        "trigger": "rejoin",
        "session_timeout_s": 30.0,
        "names": {m: m.upper() for m in members},
        "static": frozenset(),
        "leaving": frozenset(),
        "follows": False,
        "completes": "",
        "asked": None,
        "actives": {("t", n): active(m) for n, m in (owners or {}).items()},
    }
    return Decision(**base | more)


def story(*decisions: Decision, recoveries: Collection[Recovery] = ()) -> Story:
    """Return a story of these decisions."""
    return Story(group="shop", decisions=decisions, recoveries=tuple(recoveries))


# -- incidents


def test_rounds_are_one_incident_from_a_first_round_that_announces_a_second() -> None:
    """A completing round that is itself unfinished also starts an incident."""
    rounds = (
        decision(1),
        decision(2, follows=True),
        decision(3, completes="join"),
        decision(4),
        decision(5),
    )
    found = incidents(story(*rounds))
    assert [[one.generation for one in each.rounds] for each in found] == [[1], [2, 3], [4], [5]]
    assert [each.before and each.before.generation for each in found] == [None, 1, 3, 4]


def test_a_completing_round_belongs_to_the_round_before_it_only() -> None:
    """The first leader wrote no mark; a round after a gap in the ledgers starts an incident."""
    missing = decision(4, follows=True)
    rounds = (decision(1, follows=True), decision(5, before=missing), decision(6, completes="x"))
    found = incidents(story(*rounds))
    assert [[one.generation for one in each.rounds] for each in found] == [[1], [5, 6]]
    assert found[1].before is missing


def test_of_two_records_of_the_round_before_the_own_row_counts() -> None:
    """The leader's memory of the same generation has fewer facts."""
    own = decision(4)
    found = incidents(story(own, decision(5, before=replace(own, asked=None, names={}))))
    assert found[1].before is own


def test_a_member_that_left_took_no_part() -> None:
    """A stopping member is in the round that hands its partitions over."""
    leaving = decision(1, leaving=frozenset({"b"}))
    assert members_of(leaving) == {"a"}
    incident = Incident(rounds=(leaving,), before=decision(0))
    assert (incident.gone, incident.handed_over) == ({"b"}, {"b"})
    late = Incident(rounds=(decision(1), replace(leaving, generation=2)), before=decision(0))
    assert late.handed_over == {"b"}


def test_a_restarted_static_member_is_neither_gone_nor_new() -> None:
    """Both ids must be static and have the same name."""
    names = {"a": "A", "x": "S"}
    before = decision(1, names=names, static=frozenset({"x"}))
    for after_names, static, gone in (
        ({"a": "A", "y": "S"}, {"y"}, frozenset()),
        ({"a": "A", "y": "S"}, set(), {"x"}),
        ({"a": "A", "y": "T"}, {"y"}, {"x"}),
    ):
        after = decision(2, names=after_names, static=frozenset(static))
        incident = Incident(rounds=(after,), before=before)
        assert incident.gone == gone
        assert incident.came == ({"y"} if gone else frozenset())
        assert is_same_member(before, "x", after, "y") is not bool(gone)
    assert not is_same_member(None, "x", before, "y")


# -- moves


def moves(*decisions: Decision) -> list[tuple[int, str | None, str, int]]:
    """Return (first generation, former owner, owner, deciding generation) of each move."""
    found = incidents(story(*decisions))
    return [
        (one.incident.first.generation, one.was, one.to, one.by.generation)
        for one in moves_of(P0, found)
    ]


def test_the_deciding_round_is_the_round_that_changed_the_owner() -> None:
    """In the first of two rounds the partition has its former owner or no owner."""
    first, second = decision(2, {0: "a"}, follows=True), decision(3, {0: "b"}, completes="x")
    assert moves(decision(1, {0: "a"}), first, second) == [(1, None, "a", 1), (2, "a", "b", 3)]
    revoked = replace(first, actives={})
    assert moves(decision(1, {0: "a"}), revoked, second)[1:] == [(2, "a", "b", 3)]


def test_a_partition_that_returns_within_an_incident_has_not_moved() -> None:
    """The second round returned the partition."""
    there, back = decision(2, {0: "b"}, follows=True), decision(3, {0: "a"}, completes="x")
    assert moves(decision(1, {0: "a"}), there, back) == [(1, None, "a", 1)]


def test_a_leaders_memory_of_the_round_before_is_the_former_owner() -> None:
    """The ledger of the round that moved the partition to b is missing."""
    missing = decision(4, {0: "b"})
    assert moves(decision(1, {0: "a"}), decision(5, {0: "a"}, before=missing)) == [
        (1, None, "a", 1),
        (5, "b", "a", 5),
    ]


def test_the_origin_of_a_later_move_is_the_incident_with_the_newcomer() -> None:
    """The warm-up of the join moved the partition a round later."""
    rounds = (decision(1, {0: "a"}, members="a"), decision(2, {0: "a"}), decision(3, {0: "b"}))
    found = incidents(story(*rounds))
    last = list(moves_of(P0, found))[-1]
    assert (last.incident, last.origin) == (found[2], found[1])


def test_only_partitions_with_two_owners_have_changed() -> None:
    """A partition without a former owner was placed, not moved."""
    before = decision(1, {0: "a", 1: "a"})
    after = decision(2, {0: "b", 1: "a", 2: "b"})
    assert changed(before, after) == {P0}
    assert changed(None, after) == set()


def recovery(**more: Any) -> Recovery:
    """Return the restore of partition 0 on a, from 60 s to 70 s."""
    base: dict[str, Any] = {
        "decision_id": "d1",
        "place": ("log", 0),
        "member_id": "a",
        "source": "replay",
        "started": 60.0,
        "ended": 70.0,
        "records": 5,
    }
    return Recovery(**base | more)


@pytest.mark.parametrize(
    ("more", "counts"),
    [
        ({}, True),
        ({"place": ("log", 1)}, False),
        ({"place": ("other", 0)}, False),
        ({"decision_id": "d9"}, False),
        ({"member_id": "b"}, False),
        ({"member_id": "a2"}, True),
    ],
)
def test_the_restores_of_a_move_are_of_its_task_its_rounds_and_its_owner(
    more: dict[str, Any], counts: bool
) -> None:
    """A static member's new id has the same name."""
    first = decision(1, {0: "a"}, names={"a": "A", "a2": "A", "b": "B"})
    (incident,) = incidents(story(first))
    move = Moved(incident=incident, origin=incident, by=first, was=None, to="a")
    found = recoveries_of(story(first, recoveries=[recovery(**more)]), move, ("t", "log"), 0)
    assert bool(found) is counts


# -- the answer


def test_the_time_of_a_restore_counts_from_the_decision_to_the_last_table() -> None:
    """The restore of the second table begins later."""
    first, second = decision(1, {0: "a"}), decision(2, {0: "b"})
    told = [
        recovery(decision_id="d2", place=("t", 0), member_id="b", started=125.0, ended=ended)
        for ended in (130.0, 141.0, 133.0)
    ]
    answer = why_partition(story(first, second, recoveries=told), P0)
    assert answer.restored_s == 21.0
    assert why_partition(story(first, second), P0).restored_s is None


def test_a_warm_move_without_a_recovery_lacks_nothing() -> None:
    """A cold move's duration is in the ledger of its owner."""
    first = decision(1, {0: "a"})
    warm = why_partition(story(first, decision(2, {0: "b"})), P0)
    assert not any("the restore time" in one for one in warm.unknown)
    cold = decision(2, actives={P0: active("b", cold=True, standby_hit=False)})
    assert any("the restore time" in one for one in why_partition(story(first, cold), P0).unknown)


def test_the_last_heartbeat_is_not_before_the_round_before() -> None:
    """The member took part in that round; otherwise the session timeout bounds the silence."""
    first = decision(1, {0: "a", 1: "b"})
    for timeout_s, at in ((30.0, 90.0), (500.0, 60.0)):
        second = decision(2, {0: "a", 1: "a"}, members="a")
        told = why_partition(story(replace(first, session_timeout_s=timeout_s), second), P1)
        (lost,) = [one for one in told.events if "no heartbeat" in one.text]
        assert lost.at == at
    unknown = why_partition(story(replace(first, session_timeout_s=None), second), P1)
    assert not any("no heartbeat" in one.text for one in unknown.events)


def test_a_static_member_that_handed_over_stopped() -> None:
    """The member's session did not end."""
    before = decision(1, static=frozenset({"b"}))
    after = decision(2, static=frozenset({"b"}), leaving=frozenset({"b"}))
    cause = cause_of(story(before, after), Incident(rounds=(after,), before=before))
    assert cause == "B stopped (SIGTERM) and handed over"


def test_a_member_of_an_earlier_round_came_back() -> None:
    """A member with no earlier round is new."""
    rounds = (decision(1), decision(2, members="a"), decision(3, names={"a": "A", "b9": "B"}))
    assert cause_of(story(*rounds), Incident(rounds=rounds[2:], before=rounds[1])) == "B came back"
    new = decision(2, names={"a": "A", "b": "B", "c": "C"})
    assert cause_of(story(rounds[0], new), Incident(rounds=(new,), before=rounds[0])) == "C joined"


def test_a_round_is_a_follow_up_round_only_if_every_moved_task_has_a_copy() -> None:
    """Otherwise the round's trigger is the cause."""
    before = decision(1, {0: "a", 1: "a"})
    warm = decision(2, {0: "b", 1: "b"})
    mixed = replace(warm, actives={P0: active("b"), P1: active("b", standby_hit=False)})
    told = story(before, warm)
    assert "follow-up round" in cause_of(told, Incident(rounds=(warm,), before=before))
    cause = cause_of(told, Incident(rounds=(mixed,), before=before))
    assert cause == "a member requested a round, or came back to it"
    still = decision(2, {0: "a", 1: "a"}, trigger="partitions+odd")
    cause = cause_of(told, Incident(rounds=(still,), before=before))
    assert cause == "topics got other partition counts and odd"


@pytest.mark.parametrize(
    ("trigger", "cause"),
    [
        ("first", "no member had partitions"),
        ("join", "members joined"),
        ("leave", "members left"),
        ("subscription", "subscriptions changed"),
        ("partitions", "topics got other partition counts"),
        ("rejoin", "a member requested a round, or came back to it"),
        ("join+leave", "members joined and members left"),
    ],
)
def test_each_trigger_of_a_round_without_a_change_of_members_has_its_own_text(
    trigger: str, cause: str
) -> None:
    """The rounds that would show the members may be missing in the ledger."""
    before = decision(1, {0: "a"})
    round_ = decision(2, {0: "a"}, trigger=trigger)
    assert cause_of(story(before, round_), Incident(rounds=(round_,), before=before)) == cause


def test_each_source_of_a_restore_has_its_own_text() -> None:
    """The sources are the words that the ledger allows."""
    texts = {
        "local": "files on its own disk",
        "standby": "its standby",
        "snapshot": "a snapshot",
        "replay": "the changelog alone",
    }
    (column,) = (one for one in TABLES["recovery"] if one.name == "source")
    assert texts.keys() == set(column.words)
    rounds = decision(1, {0: "a"}), decision(2, {0: "b"})
    for source, text in texts.items():
        restore = recovery(decision_id="d2", place=("t", 0), member_id="b", source=source)
        events = why_partition(story(*rounds, recoveries=[restore]), P0).events
        assert f"restore of t/0 on B begins, from {text}" in [one.text for one in events]


def test_only_the_gained_partitions_of_a_member_are_counted_as_cold() -> None:
    """A partition that the member kept is warm even if its row is marked cold."""
    before = decision(1, {0: "a", 1: "b"})
    cold = {P0: active("a", cold=True), P1: active("a", cold=True)}
    after = decision(2, actives=cold)
    (event,) = _member_events(story(before, after), Incident(rounds=(after,), before=before), {"a"})
    assert event.text.endswith("gains t/1 (1 cold)")


def test_a_member_that_has_left_is_not_in_the_group() -> None:
    """The last decision still names the member."""
    last = decision(2, {0: "a"}, leaving=frozenset({"b"}))
    told = story(decision(1, {0: "b"}), last)
    assert why_member(told, "b").headline.startswith("B is not in the group")
    assert why_member(told, "http://A:6066/").headline.startswith("A owns t/0")


def test_a_time_within_the_minute_of_a_round_includes_the_round() -> None:
    """A round a minute later is not included."""
    told = story(decision(1, {0: "a"}), decision(2, {0: "b"}))
    assert "moved from" in why_partition(told, P0, at=60.1).headline
    assert "placed" in why_partition(told, P0, at=60.0).headline


# -- reading


def test_the_newest_name_of_a_member_counts() -> None:
    """The leader's memory may also have the name; an unknown id is its own name."""
    old, new = decision(1, names={"a": "old"}), decision(2, names={"a": "new"})
    gone = decision(0, names={"z": "Z"})
    told = story(old, replace(new, before=gone))
    assert [told.name(one) for one in "azq"] == ["new", "Z", "q"]


def test_a_host_with_two_workers_shows_ports_and_an_empty_url_shows_the_id() -> None:
    """A single worker on a host is named by the host alone."""
    members = [{"member_id": m} for m in "abcd"]
    urls = {"a": "http://box:1", "b": "http://box:2", "c": "http://alone:1", "d": ""}
    row = {"members": members, "cause": {"urls": urls}}
    shared = shared_hosts([row])
    assert shared == {"box"}
    assert names_of(row, shared) == {"a": "box:1", "b": "box:2", "c": "alone", "d": "d"}


def test_the_first_copy_of_a_line_counts_and_a_holder_is_named_once() -> None:
    """The ledgers of two writers may repeat a row."""
    placed = Placed()
    row = {"topic": "t", "partition": 0, "role": "standby", "member_id": "b"}
    for one in (row, row, row | {"member_id": "c"}, row | {"role": "warmup", "member_id": "d"}):
        placed.add(one)
    assert placed.standbys == {P0: ("b", "c", "d")}


def test_a_recovery_has_its_times_in_seconds() -> None:
    """The times are seconds since 1970."""
    from faust_assigner.ledger import Row, parse

    row = {
        "group_id": "shop",
        "decision_id": "d1",
        "topic": "t",
        "partition": 0,
        "member_id": "a",
        "source": "replay",
        "started": 100.5,
        "ended": 101.0,
        "start_offset": 0,
        "end_offset": 5,
        "records": 5,
        "bytes": 9,
    }
    found = parse(encode("recovery", row))
    assert isinstance(found, Row)
    assert recovery_of(found.values) == recovery(place=P0, started=100.5, ended=101.0)


# -- planning again


def asked(**more: Any) -> PlanInput:
    """Return the input of two members; a owns both partitions of t and its table."""
    both = {"t": [0, 1], "log": [0, 1]}
    members = (
        Member("a", ["t", "log"], actives=both, generation=4),
        Member("b", ["t", "log"], generation=5),
    )
    base: dict[str, Any] = {
        "members": members,
        "partitions": {"t": 2, "log": 2},
        "replicas": 0,
        "changelogs": frozenset({"log"}),
    }
    return PlanInput(**base | more)


def moved(before: Decision | None, after: Decision) -> Moved:
    """Return the move of partition 0 from a to b."""
    incident = Incident(rounds=(after,), before=before)
    return Moved(incident=incident, origin=incident, by=after, was="a", to="b")


def changes(input_: PlanInput, *, before: Decision | None = None) -> str:
    """Return the changes that are tried for a move, in a line."""
    move = moved(before or decision(1), decision(2))
    return "; ".join(change for change, _ in _possible_changes(story(), move, P0, input_))


def test_only_changes_that_change_something_are_tried() -> None:
    """Equal capacities, weights off, warm-ups on and a lag of 0 are tried unless in effect."""
    plain = changes(asked())
    assert "warm-ups on" in plain
    assert "equal capacities" not in plain
    assert "weights off" not in plain
    assert "table_standby_replicas=1" in plain
    policy = WarmupPolicy(acceptable_recovery_lag=5)
    assert "an acceptable lag of 0" in changes(asked(warmups=policy))
    zero = WarmupPolicy(acceptable_recovery_lag=0)
    assert "acceptable lag" not in changes(asked(warmups=zero))
    uneven = asked(members=(asked().members[0], replace(asked().members[1], capacity=2.0)))
    assert "equal capacities" in changes(uneven)
    assert "weights off" in changes(asked(weights={("t", 0): 2.0}))


def test_a_departed_member_comes_back_with_its_partitions_and_the_newest_generation() -> None:
    """The returned member has no awaited copies, no promises and no positions."""
    odd = Member(
        "c",
        ["t", "log"],
        former_actives={"t": [1]},
        awaited={"log": [1]},
        overdue={"log": [1]},
        positions={"log": {0: 1}},
        capacity=2.0,
        generation=1,
    )
    before = decision(
        1,
        {0: "c", 1: "a"},
        asked=asked(members=(odd,)),
        standbys={("log", 1): ("c", "a"), ("log", 0): ("a",)},
    )
    back = _member_as_before("c", before, asked())
    assert back == Member(
        "c", ["t", "log"], actives={"t": [0]}, standbys={"log": [1]}, generation=5, capacity=2.0
    )
    assert _member_as_before("c", None, asked()) is None
    assert _member_as_before("c", before, asked(members=())) is None


def test_without_the_newcomers_a_group_may_be_empty() -> None:
    """A group without members has no plan."""
    left = _without_newcomers(frozenset({"b"}), asked())
    assert left is not None
    assert [one.member_id for one in left.members] == ["a"]
    assert _without_newcomers(frozenset({"a", "b"}), asked()) is None


def test_one_more_standby_is_caught_up_on_the_members_of_the_round_before() -> None:
    """A newcomer has no copy; unknown positions delay no move."""
    before = decision(1, asked=asked(warmups=WarmupPolicy()))
    told = replace(
        asked(), members=tuple(replace(m, positions={"log": {}}) for m in asked().members)
    )
    told = told.with_members((*told.members, Member("new", ["t", "log"], positions={})))
    made = _with_one_more_standby(moved(before, decision(2)), told)
    assert made is not None
    assert made.replicas == 1
    by_id = {one.member_id: one for one in made.members}
    assert sum(len(by_id[m].standbys.get("log", ())) for m in "ab") == 2
    assert [by_id[m].positions for m in ("a", "b", "new")] == [None, None, {}]
    assert by_id["new"].standbys == {}
    assert _with_one_more_standby(moved(None, decision(2)), told) is None
    assert _with_one_more_standby(moved(decision(1), decision(2)), told) is None


def test_one_more_standby_is_planned_in_the_round_before_the_move() -> None:
    """The members may have joined or left in an earlier incident, the origin of the move."""
    before = decision(1, asked=asked())
    move = moved(before, decision(2))
    unknown = Incident(rounds=(decision(2),), before=None)
    assert _with_one_more_standby(replace(move, origin=unknown), asked()) is not None
    assert _with_one_more_standby(replace(move, incident=unknown), asked()) is None


def test_each_departed_member_has_the_change_of_its_own_departure() -> None:
    """In one incident b was killed, c handed over, and the static d was not back in time."""
    before = decision(1, members=("a", "b", "c", "d"), static=frozenset("d"))
    after = decision(2, members=("a", "c"), leaving=frozenset("c"))
    tried = [
        change
        for change, _ in _possible_changes(story(before, after), moved(before, after), P0, asked())
    ]
    assert tried[:3] == [
        "B still there",
        "an instance id for C (consumer_group_instance_id), back within its session",
        "a longer session timeout (broker_session_timeout): the static member D is back in time",
    ]


def test_the_names_of_a_round_go_before_the_names_of_the_round_before() -> None:
    """The round before names the members that have left."""
    before = decision(1, members=("a", "z"))
    after = decision(2, before=before, names={"a": "new"})
    assert after.all_names == {"a": "new", "z": "Z"}


def test_a_member_without_partitions_that_leaves_is_in_its_own_story() -> None:
    """The member neither gains nor loses a partition."""
    before = decision(1, {0: "a"}, members=("a", "b", "c"))
    after = decision(2, {0: "a"}, members=("a", "b"))
    events = why_member(story(before, after), "C").events
    assert [event.at for event in events] == [60.0, 120.0]
    assert events[1].text.endswith(": no partition moves")


def test_an_owner_with_a_copy_is_not_cold_and_a_stateless_task_never_is() -> None:
    """A partition outside the topic has no owner."""
    copy = replace(asked().members[1], standbys={"log": [0, 1]})
    plan = asked(members=(asked().members[0], copy)).plan()
    found = [_outcome(plan, ("t", n)) for n in (0, 1)]
    assert {one.owner for one in found if one} == {"a", "b"}
    assert [one.is_cold for one in found if one] == [False, False]
    cold = asked().plan()
    assert sorted(one.is_cold for n in (0, 1) if (one := _outcome(cold, ("t", n)))) == [False, True]
    stateless = asked(changelogs=frozenset()).plan()
    assert not any(one.is_cold for n in (0, 1) if (one := _outcome(stateless, ("t", n))))
    assert _outcome(plan, ("t", 2)) is None


def test_a_plan_that_differs_from_the_decision_explains_nothing() -> None:
    """The round carried out an earlier target."""
    after = decision(2, {0: "b"}, asked=asked())
    owner = _outcome(asked().plan(), P0)
    assert owner is not None
    wrong = "a" if owner.owner == "b" else "b"
    found, why = remedies(story(), replace(moved(decision(1), after), to=wrong), P0)
    assert found == ()
    assert "a different plan" in why


def test_a_change_avoids_a_warm_move_only_if_the_task_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A different warm owner is a remedy for a cold move only."""
    warm, stays = again.Outcome(owner="c", is_cold=False), again.Outcome(owner="a", is_cold=True)
    move = moved(decision(1), decision(2))
    for was_cold, now, avoids in (
        (False, warm, False),
        (True, warm, True),
        (False, stays, True),
        (True, again.Outcome(owner="c", is_cold=True), False),
    ):
        monkeypatch.setattr(again, "_outcome", lambda *_, now=now: now)
        was = again.Outcome(owner="b", is_cold=was_cold)
        found = again._try_change(story(), "x", lambda: asked(), P0, move, was)
        assert (found is not None) is avoids


def test_a_first_incident_without_a_change_of_members_is_its_own_origin() -> None:
    """The leader of a second ledger remembers the round before."""
    before = decision(1, {0: "a"})
    (found,) = incidents(story(decision(2, {0: "b"}, before=before)))
    (move,) = moves_of(P0, [found])
    assert (move.was, move.to, move.origin) == ("a", "b", found)


def written(name: str, at: float, generation: int, trigger: str = "join") -> bytes:
    """Return a decision as a leader writes it."""
    return encode(
        "decision",
        {
            "group_id": "shop",
            "decision_id": name,
            "ts": at,
            "generation": generation,
            "trigger": trigger,
            "policy": "p",
            "config": {},
            "members": [],
            "solve_ms": 1.0,
        },
    )


def test_decisions_are_ordered_by_time_and_the_first_line_of_each_counts() -> None:
    """Generations restart after a group's deletion; a ledger in a topic may repeat a line."""
    lines = [
        b"{no row",
        written("new", 300.0, 1),
        written("old", 100.0, 7),
        written("old", 100.0, 7, trigger="repeated"),
        written("at once", 300.0, 0),
    ]
    found = read(lines)
    assert [(one.decision_id, one.trigger) for one in found.decisions] == [
        ("old", "join"),
        ("at once", "join"),
        ("new", "join"),
    ]


@pytest.mark.parametrize(
    ("said", "order"),
    [
        # (time, generation)
        ([(0, 1), (10, 3), (20, 2), (30, 4)], [1, 2, 3, 4]),
        ([(0, 3), (50, 1), (60, 2), (70, 4)], [1, 2, 3, 4]),
        # A later life of the group: much later, far below, or with a repeated number.
        ([(0, 7), (121, 6), (130, 8)], [7, 6, 8]),
        ([(0, 7), (120, 6), (130, 8)], [6, 7, 8]),
        ([(0, 12), (10, 1), (20, 2)], [12, 1, 2]),
        ([(0, 11), (10, 1), (20, 12)], [1, 11, 12]),
        ([(0, 1), (10, 2), (20, 1), (30, 2)], [1, 2, 1, 2]),
        ([(0, 1), (10, 2), (20, 2), (30, 3)], [1, 2, 2, 3]),
    ],
)
def test_a_wrong_clock_reorders_only_neighbours(
    said: list[tuple[int, int]], order: list[int]
) -> None:
    """A clock that is set back, or clocks that differ, must not hide the newest round."""
    found = read([written(f"d{at}", float(at + 1), generation) for at, generation in said])
    assert [one.generation for one in found.decisions] == order

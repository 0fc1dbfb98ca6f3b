"""The story of a partition and of a member, from ledgers that the leader's own code writes."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from faust_assigner.story.incidents import incidents
from faust_assigner.story.read import NothingKnown, read
from faust_assigner.story.tell import Answer, why_member, why_partition
from tests.support.status import AT, LOG
from tests.unit.story.ledgers import Told, offering, told


def text(answer: Answer) -> str:
    """Return the texts of all events."""
    return "\n".join(event.text for event in answer.events)


def killed(**options: int) -> tuple[Told, int]:
    """Return a group whose member m1 was killed, and a partition that m1 owned."""
    found = told(**options)
    (number, *_) = found.owned("m1")
    found.leave("m1").round()
    return found, number


def test_a_killed_owner_is_told_from_one_that_was_stopped() -> None:
    """A stopping member announces its leave after SIGTERM; a killed member announces no leave."""
    dead, number = killed()
    answer = why_partition(dead.story(), ("orders", number))
    assert "w1 left without handing over: killed, cut off" in text(answer)
    assert "session timeout of 60 s" in text(answer)
    assert len({event.text for event in answer.events}) == len(answer.events), "each round once"
    stopped = told()
    (number, *_) = stopped.owned("m1")
    offering(stopped, "m1", {"leaves": True})
    stopped.round().leave("m1").round()
    answer = why_partition(stopped.story(), ("orders", number))
    assert "w1 stopped (SIGTERM) and handed over" in text(answer)
    assert "session timeout" not in text(answer)


def test_a_static_member_that_did_not_come_back_is_named_so() -> None:
    """The member's session ended; a longer session would have avoided the move."""
    found = told()
    offering(found, "m1", {"instance_id": "shop-1"})
    found.round()
    (number, *_) = found.owned("m1")
    found.leave("m1").round()
    answer = why_partition(found.story(), ("orders", number))
    assert "shop-1 (static) was not back within its session timeout" in text(answer)
    assert answer.avoided_by[0].change.startswith("a longer session timeout")


def test_a_static_member_that_restarted_within_its_session_moved_nothing() -> None:
    """Its new id appears in the round after m2's death, which moves only m2's partitions."""
    found = told()
    offering(found, "m1", {"instance_id": "shop-1"})
    found.round()
    (kept, *_) = found.owned("m1")
    (lost, *_) = found.owned("m2")
    count = sum(len(list(numbers)) for numbers in found.group.answer_of("m2").actives.values())
    for kind in (found.group.claims, found.group.offers):
        kind["m1-again"] = kind.pop("m1")
    found.leave("m2").round()
    assert found.owned("m1-again")[0] == kept
    assert "moved from" not in why_partition(found.story(), ("orders", kept)).headline
    answer = text(why_partition(found.story(), ("orders", lost)))
    assert "shop-1 (static) restarted within its session timeout" in answer
    assert "shop-1 (static) was not back" not in answer
    assert "shop-1 came back" not in answer
    assert "shop-1 sends no heartbeat" not in answer
    assert f"{count} partitions move" in answer
    (gained,) = [event.text for event in why_member(found.story(), "shop-1").events[1:]]
    assert "loses" not in gained


def test_a_first_placement_has_no_owner_before_it() -> None:
    """The event states that the partition had no owner."""
    found = told()
    (number, *_) = found.owned("m1")
    answer = why_partition(found.story(), ("orders", number), at=found.now)
    assert f"orders/{number}: no owner -> w" in text(answer)


def test_both_rounds_of_an_incident_are_one_story() -> None:
    """The answer has the revoke round and the completing round; the latter decides the move."""
    found = told(2)
    found.join("m2").round().round()
    story = found.story()
    double = [one for one in incidents(story) if len(one.rounds) > 1]
    assert double, "the newcomer's tasks were let go first"
    number = next(n for n in found.owned("m2"))
    answer = why_partition(story, ("orders", number))
    assert "w2" in answer.headline
    assert "second of the incident's rounds" in text(answer)
    joined, followed, *_ = [event.text for event in answer.events]
    assert "w2 joined" in joined, "the cause lies a round before the move"
    assert "follow-up round" in followed
    assert [one.change for one in answer.avoided_by] == ["without w2"]


@pytest.mark.parametrize("static", [False, True])
def test_the_next_leader_knows_what_the_one_that_died_had(static: bool) -> None:
    """The killed leader's ledger is lost, and the question is about the killed leader."""
    found = Told(session_timeout_s=15.0)
    for name in ("m0", "m1", "m2"):
        found.join(name, **({"instance_id": f"shop-{name}"} if static else {}))
    found.round().round()
    number = min(found.owned("m0"))
    dead = "shop-m0" if static else "w0"
    found.leave("m0").round("m1")
    both = why_partition(found.story(), ("orders", number))
    answer = why_partition(read(found.ledgers["m1"]), ("orders", number))
    assert answer.headline == both.headline
    assert f"moved from {dead} to " in answer.headline
    assert [event.text for event in answer.events] == [event.text for event in both.events]
    assert answer.avoided_by[0] == both.avoided_by[0]
    story = why_member(read(found.ledgers["m1"]), dead)
    assert story.headline.startswith(f"{dead} is not in the group")
    assert "loses orders/" in story.events[-1].text


def test_what_a_leader_remembers_does_not_hide_what_was_written() -> None:
    """The former round's own ledger has rules and inputs, so it has priority over the memory."""
    found = told(3)
    found.leave("m0").round("m1")
    before = incidents(found.story())[-1].before
    assert before is not None
    assert before.asked is not None
    alone = incidents(read(found.ledgers["m1"]))[-1].before
    assert alone is not None
    assert alone.asked is None
    owners = {place: active.member_id for place, active in before.actives.items()}
    remembered = {place: active.member_id for place, active in alone.actives.items()}
    assert remembered == {p: "w0" if owner == "m0" else owner for p, owner in owners.items()}
    assert set(remembered.values()) == {"w0", "m1", "m2"}
    assert alone.generation == before.generation


@pytest.mark.parametrize(
    "damage",
    [
        None,
        [],
        {},
        {"urls": 1},
        {"urls": ["http://w0:6066"], "instances": [1, 2], "owners": [], "generation": 1},
        {
            "urls": ["http://w0:6066"],
            "instances": [],
            "owners": [{"topics": ["orders"]}],
            "generation": 1,
        },
        {
            "urls": [],
            "instances": [],
            "owners": [{"topics": ["t"], "partitions": ["x"]}],
            "generation": 1,
        },
    ],
)
def test_a_round_before_that_cannot_be_read_is_passed_over(damage: Any) -> None:
    """A different version of the package wrote the line."""
    found = told(3)
    found.leave("m0").round("m1")
    lines = []
    for line in found.ledgers["m1"]:
        row = json.loads(line)
        if "before" in row:
            row["before"] = damage
        lines.append(json.dumps(row).encode())
    assert [one.before for one in read(lines).decisions] == [None] * len(read(lines).decisions)


def test_the_story_goes_on_under_another_leader() -> None:
    """A second member leads the second round and writes to its own ledger."""
    found = told(2)
    found.plays_whole = False
    found.join("m2").round()
    for _ in range(4):
        if found.follows:
            break
        found.round()
    assert found.follows
    found.leave("m0").one_round("m1")
    while found.follows:
        found.one_round("m1")
    assert set(found.ledgers) == {"m0", "m1"}
    last = [one for one in incidents(found.story()) if len(one.rounds) > 1][-1]
    by_m0 = found.ledgers["m0"]
    alone = incidents(read(by_m0))
    assert len(last.rounds) > len(alone[-1].rounds)


def test_ledgers_in_any_order_and_twice_tell_the_same() -> None:
    """Two copies of a line count as a single row."""
    found, number = killed()
    lines = [line for name in sorted(found.ledgers) for line in found.ledgers[name]]
    assert why_partition(read(lines), ("orders", number)) == why_partition(
        read([*lines[::-1], *lines]), ("orders", number)
    )


def test_a_cold_move_names_the_standby_that_would_have_avoided_it() -> None:
    """Without standbys the remedies are m1's return or a standby more; the restore has its time."""
    found, number = killed(replicas=0)
    owner = next(name for name in ("m0", "m2") if number in found.owned(name))
    found.recover(owner, LOG, number, source="replay", records=41_000, seconds=12.5)
    answer = why_partition(found.story(), ("orders", number))
    changes = [one.change for one in answer.avoided_by]
    assert changes[0] == "w1 still there"
    assert answer.avoided_by[0].then == "it stays with w1"
    assert any("table_standby_replicas=1" in change for change in changes)
    assert answer.restored_s == pytest.approx(12.6, abs=0.01)
    assert "cold: no living member had its table" in answer.headline
    assert "41,000 records in 12.5 s" in text(answer)
    assert "from the changelog alone" in text(answer)
    assert answer.rule == "had no living owner and goes to a member with room in the balance"


def test_a_move_onto_a_standby_is_warm_and_one_more_does_not_avoid_it() -> None:
    """A second standby adds no remedy."""
    found, number = killed(replicas=1)
    answer = why_partition(found.story(), (LOG, number))
    assert "warm" in answer.headline
    assert not any("standby more" in one.change for one in answer.avoided_by)


def test_a_move_to_a_newcomer_is_avoided_by_its_not_coming() -> None:
    """The newcomer's join is named as the cause."""
    found = told(2, end=0)
    found.join("m2").round()
    number = found.owned("m2")[0]
    answer = why_partition(found.story(), ("orders", number))
    assert "w2 joined" in text(answer)
    assert "without w2" in [one.change for one in answer.avoided_by]


def test_planning_again_gives_the_decision_that_was_made() -> None:
    """The ledger has the complete input of a decision: the digest of the new plan is the same."""
    from faust_assigner.app.ledger.rows import digest

    found = told(4)
    found.join("m4", rack_id="a", capacity=2.0).round().leave("m0").round("m1")
    decisions = found.story().decisions
    assert len(decisions) >= 4
    rows = [json.loads(line) for lines in found.ledgers.values() for line in lines]
    digests = {r["decision_id"]: r["inputs_digest"] for r in rows if "inputs_digest" in r}
    for decision in decisions:
        assert decision.asked is not None
        assert digest(decision.asked.plan()) == digests[decision.decision_id]


def test_a_ledger_of_an_older_version_says_what_it_lacks() -> None:
    """The timeline is complete; the changes that would have avoided the move are unknown."""
    found, number = killed()
    story = found.story()
    old = replace(story, decisions=tuple(replace(one, asked=None) for one in story.decisions))
    answer = why_partition(old, ("orders", number))
    assert answer.avoided_by == ()
    assert "older version" in answer.unknown[0]


def test_a_time_chooses_the_last_move_until_then() -> None:
    """The whole minute counts; before the first round no answer exists."""
    found, number = killed()
    story = found.story()
    first, last = story.decisions[0].at, story.decisions[-1].at
    assert "moved" in why_partition(story, ("orders", number), at=last).headline
    assert "placed" in why_partition(story, ("orders", number), at=first).headline
    with pytest.raises(NothingKnown, match="not placed before"):
        why_partition(story, ("orders", number), at=AT - 3600)


def test_a_member_has_a_story() -> None:
    """The story has its join, gains, losses and end; the question has its name, URL or id."""
    found, _ = killed()
    for name in ("w1", "http://w1:6066", "m1"):
        answer = why_member(found.story(), name)
        assert "gains" in answer.events[0].text
        assert "w1 left without handing over" in answer.events[-1].text
        assert "loses" in answer.events[-1].text
    with pytest.raises(NothingKnown, match="w0, w1, w2"):
        why_member(found.story(), "w9")


@pytest.mark.parametrize("odd", [5, True, {}, "soon", 10**400])
def test_optional_values_of_a_wrong_type_are_left_out(odd: object) -> None:
    """A later version or a foreign writer wrote the line: the values are left out of the story."""
    found, number = killed()
    rows = [json.loads(line) for line in found.ledgers["m0"]]
    for row in rows:
        if row["table"] == "decision":
            row["cause"]["leaving"] = odd
        elif row["table"] == "assignment":
            row["rejected"] = odd
    answer = why_partition(read(json.dumps(row).encode() for row in rows), ("orders", number))
    assert "left without handing over" in text(answer)
    assert "passed over" not in text(answer)


def test_an_input_that_the_planner_refuses_leaves_the_change_unknown() -> None:
    """The move is shown; the reason names the decision."""
    found, number = killed()
    rows = [json.loads(line) for line in found.ledgers["m0"]]
    for row in rows:
        if row["table"] == "decision":
            row["asked"]["members"][0]["capacity"] = -1.0
    answer = why_partition(read(json.dumps(row).encode() for row in rows), ("orders", number))
    assert answer.headline.startswith(f"orders/{number} moved from w1")
    assert answer.avoided_by == ()
    assert "cannot be planned again" in answer.unknown[0]


def test_a_partition_whose_move_is_in_a_missing_ledger_names_its_owner_and_the_ledger() -> None:
    """A stopped leader decides its own replacement; the next leader's ledger begins later."""
    found = Told().join("m0", "m1", "m2").round("m0").leave("m1").round("m0").round("m2")
    last = read(found.ledgers["m2"])
    assert len(last.decisions) == 1
    ((topic, number), active), *_ = last.decisions[0].actives.items()
    owner = re.escape(last.name(active.member_id))
    with pytest.raises(NothingKnown, match=rf"^{owner} owns {topic}/{number}, .*--ledger"):
        why_partition(last, (topic, number))


def test_the_story_of_a_member_ends_with_the_minute_that_is_named() -> None:
    """The story of a partition has the same limit."""
    found, _ = killed()
    story = found.story()
    died_at = incidents(story)[-1].first.at
    whole = why_member(story, "w1", at=died_at).events
    assert "left without handing over" in whole[-1].text
    assert why_member(story, "w1", at=died_at - 60).events == whole[:-1]


def test_what_the_ledger_does_not_name_is_an_error() -> None:
    """The error names an unknown partition, a missing group or several groups."""
    found, _ = killed()
    with pytest.raises(NothingKnown, match="no decision in the ledger places"):
        why_partition(found.story(), ("orders", 99))
    with pytest.raises(NothingKnown, match="ledgers of all workers"):
        read([])
    lines = [line for ledger in found.ledgers.values() for line in ledger]
    other = [line.replace(b'"shop"', b'"bakery"') for line in lines]
    with pytest.raises(NothingKnown, match="bakery, shop"):
        read([*lines, *other])
    assert read([*lines, *other], "bakery").group == "bakery"


def test_workers_of_one_host_are_told_apart_by_their_ports_throughout() -> None:
    """The ports appear even in the decision with a single remaining worker."""
    found = Told()
    for n in range(2):
        found.join(f"m{n}")
        found.group.claims[f"m{n}"] = replace(
            found.group.claims[f"m{n}"], url=f"http://127.0.0.1:{7000 + n}"
        )
    found.round().round().leave("m1").round()
    story = found.story()
    assert {story.name("m0"), story.name("m1")} == {"127.0.0.1:7000", "127.0.0.1:7001"}
    assert "is not in the group" in why_member(story, "http://127.0.0.1:7001").headline
    assert "owns" in why_member(story, "http://127.0.0.1:7000").headline


@pytest.mark.parametrize("host", ["box", "10.0.0.1", "[fd00::1]"])
def test_a_member_is_found_by_each_form_of_its_url(host: str) -> None:
    """The address of an IPv6 host has colons itself."""
    found = told(2)
    found.join("m9")
    found.group.claims["m9"] = replace(found.group.claims["m9"], url=f"http://{host}:7000/")
    story = found.round().round().story()
    assert story.name("m9") == host
    for form in (host, f"{host}:7000", f"http://{host}:7000", f"https://{host}:7000/", "m9"):
        assert why_member(story, form).subject == host
    for other in ("", "[fd00", "7000", f"{host}:7000:1"):
        with pytest.raises(NothingKnown, match="no member"):
            why_member(story, other)


def test_a_clock_that_was_set_back_does_not_hide_the_newest_round() -> None:
    """The clock of the leader goes back by more than the time since the last two rounds."""
    found = told()
    found.leave("m1").round()
    found.now -= 150.0
    found.join("m3").round()
    story = found.story()
    assert [one.generation for one in story.decisions] == [1, 2, 3, 4]
    assert why_member(story, "w3").headline.startswith("w3 owns ")
    assert why_member(story, "w1").headline.startswith("w1 is not in the group")

"""The roster of a classic group: its leader, its protocol, and the counts beside the members."""

from __future__ import annotations

from dataclasses import replace

import pytest

from faust_assigner.coordinator.effects import MemberRecord
from faust_assigner.coordinator.events import JoinGroup, Protocol
from faust_assigner.coordinator.members import Member, Roster


def offering(*names: str) -> tuple[Protocol, ...]:
    """Return protocols, each with its own name as metadata."""
    return tuple(Protocol(name, b"of " + name.encode()) for name in names)


def member(member_id: str, protocols: str, *, instance_id: str | None = None) -> Member:
    """Return a member; each letter is a protocol."""
    return Member(member_id, instance_id, "c", "/h", 7, 8, offering(*protocols))


def roster(*protocols: str) -> Roster:
    """Return a roster of members m0, m1, ... that offer these protocols."""
    made = Roster()
    for n, offered in enumerate(protocols):
        made.add(member(f"m{n}", offered))
    return made


@pytest.mark.parametrize(
    ("protocols", "chosen"),
    [
        (("xbc", "ybc", "cb"), "b"),
        (("ab", "ba"), "a"),
        (("ba", "ab"), "b"),
        (("ab", "ba", "ba"), "b"),
        (("aab", "b"), "b"),
        (("a", "b"), None),
        ((), None),
    ],
)
def test_each_member_votes_for_its_first_common_protocol(
    protocols: tuple[str, ...], chosen: str | None
) -> None:
    """A tie goes to the first member's choice; a repeated protocol counts once."""
    assert roster(*protocols).select_protocol() == chosen


def test_the_counts_follow_offers_replacements_and_removals() -> None:
    """A protocol is common while every current member offers the protocol."""
    made = roster("ab", "ac", "abc")
    assert made.common_protocols() == {"a"}
    assert [made.is_common(name) for name in "abcx"] == [True, False, False, False]
    made.offer(made["m1"], offering("b", "c"))
    assert made.common_protocols() == {"b"}
    made.put("m1", replace(made["m1"], member_id="m9", protocols=offering("a", "b")))
    assert made.common_protocols() == {"a", "b"}
    made.remove("m0")
    made.remove("m2")
    assert made.common_protocols() == {"a", "b"}
    assert [one.member_id for one in made] == ["m9"]
    made.remove("m9")
    assert (made.common_protocols(), len(made), made.leader) == (frozenset(), 0, None)
    assert made.is_common("ghost"), "an empty group accepts any protocol"


def test_the_first_member_leads_and_then_the_earliest_that_stays() -> None:
    """A replaced leader leads under its new id, in its old place."""
    made = roster("a", "a", "a")
    assert made.leader == "m0"
    made.put("m1", replace(made["m1"], member_id="m8"))
    assert made.leader == "m0"
    made.put("m0", replace(made["m0"], member_id="m9"))
    assert (made.leader, [one.member_id for one in made]) == ("m9", ["m9", "m8", "m2"])
    assert made.remove("m8").member_id == "m8"
    assert made.leader == "m9"
    made.remove("m9")
    assert made.leader == "m2"
    assert ("m2" in made, "m9" in made) == (True, False)


def test_a_leader_that_joined_again_stays_and_else_the_first_that_joined_leads() -> None:
    """Without a parked join no member can assign."""
    made = roster("a", "a", "a")
    assert not made.elect_joined_leader()
    assert made.leader == "m0"
    made.park(made["m2"], (5,))
    made.park(made["m1"], (6, 7))
    assert made.elect_joined_leader()
    assert made.leader == "m1"
    made.park(made["m0"], (8,))
    assert made.elect_joined_leader()
    assert made.leader == "m1"
    made.leader = None
    assert made.elect_joined_leader()
    assert made.leader == "m0"


def test_the_waiting_members_are_counted_as_they_park_and_leave() -> None:
    """All members have joined when each member waits and no issued id is unused."""
    made = roster("a", "a")
    assert (made.joined(), made.everyone_joined()) == (0, False)
    made.park(made["m0"], (1,))
    made.park(made["m0"], (1, 2))
    assert (made.joined(), made.everyone_joined()) == (1, False)
    made.pending.add("m7")
    made.park(made["m1"], (3,))
    assert (made.joined(), made.everyone_joined()) == (2, False)
    made.add(replace(member("m7", "a"), join_tokens=(4,)))
    assert (made.joined(), made.everyone_joined(), made.pending) == (3, True, set())
    made.offer(made["m1"], offering("b"))
    assert made.joined() == 3
    made.put("m0", replace(made["m0"], member_id="m9", join_tokens=()))
    assert (made.joined(), made.everyone_joined()) == (2, False)
    made.remove("m1")
    made.park(made["m7"], ())
    assert made.joined() == 0


def test_an_instance_id_belongs_to_its_newest_member_until_that_one_goes() -> None:
    """An empty instance id is an id."""
    made = Roster()
    made.add(member("m0", "a", instance_id="i"))
    made.add(member("m1", "a", instance_id=""))
    made.add(member("m2", "a"))
    assert made.instances == {"i": "m0", "": "m1"}
    made.put("m0", replace(made["m0"], member_id="m9"))
    made.put("m2", replace(made["m2"], member_id="m8"))
    assert made.instances == {"i": "m9", "": "m1"}
    made.remove("m1")
    made.remove("m8")
    assert made.instances == {"i": "m9"}


def test_the_longest_rebalance_timeout_of_any_member_counts() -> None:
    """The timeout of an empty group is 0."""
    made = Roster()
    assert made.rebalance_timeout_ms() == 0
    for n, timeout in enumerate((5, 9, 7)):
        made.add(replace(member(f"m{n}", "a"), rebalance_timeout_ms=timeout))
    assert made.rebalance_timeout_ms() == 9


def test_a_member_keeps_every_field_through_its_record() -> None:
    """A join makes a new, waiting member; a record has the next assignment, even an empty one."""
    event = JoinGroup(
        1, "", "m", offering("a", "b"), "consumer", 11, 12, "i", "client", "/host", "why"
    )
    joined = Member.from_join(event, "m5")
    new = Member("m5", "i", "client", "/host", 11, 12, offering("a", "b"), is_new=True)
    assert joined == replace(new, join_tokens=(1,))
    joined.assignment = b"held"
    record = MemberRecord("m5", "i", "client", "/host", 11, 12, offering("a", "b"), b"held")
    assert joined.record() == record
    assert joined.record(b"") == replace(record, assignment=b"")
    assert joined.record(b"new") == replace(record, assignment=b"new")
    assert Member.from_record(record) == replace(joined, is_new=False, join_tokens=())
    assert [joined.metadata(name) for name in ("a", "b", "x", None)] == [b"of a", b"of b", b"", b""]
    assert [joined.vote(frozenset(names)) for names in ("ba", "b", "x", "")] == [
        "a",
        "b",
        None,
        None,
    ]


def test_a_replacement_gets_the_place_and_the_leadership_of_its_member_alone() -> None:
    """Each of three members is replaced in turn while the second member leads."""
    for old_id in ("m0", "m1", "m2"):
        made = roster("ab", "ac", "ad")
        made.leader = "m1"
        made.park(made["m2"], (5,))
        fresh = replace(made[old_id], member_id="new", instance_id="i", join_tokens=(6,))
        made.put(old_id, fresh)
        order = [one.member_id for one in made]
        assert order == ["new" if name == old_id else name for name in ("m0", "m1", "m2")]
        assert made.leader == ("new" if old_id == "m1" else "m1")
        assert made.instances == {"i": "new"}
        assert made.joined() == (1 if old_id == "m2" else 2)
        assert made["new"] is fresh
        assert old_id not in made

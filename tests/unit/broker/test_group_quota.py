"""The rights to create groups: a flood from one address leaves room for other addresses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from faust_assigner.broker import limits
from faust_assigner.broker.groups.admission import GroupQuota
from faust_assigner.broker.storage.store import MemoryStore
from faust_assigner.coordinator.effects import Reply
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import (
    CommitOffsets,
    ConsumerGroupHeartbeat,
    DeleteGroup,
    JoinGroup,
    Protocol,
)
from faust_assigner.coordinator.offsets import Committed
from tests.unit.broker.test_groups import Desk

CAP = 100


@dataclass(eq=False)
class Peer:
    """A connection, as the group quota sees it."""

    address: str = "10.0.0.1"
    created_groups: int = 0


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit the broker to a hundred groups, half of them for groups of offsets alone."""
    monkeypatch.setattr(limits, "MAX_GROUPS", CAP)


def commit(desk: Desk, peer: Peer, group_id: str) -> Code:
    """Commit an offset of a consumer without a group membership; store the offset if it is admitted."""
    answers: list[Reply] = []
    desk.service.ask(group_id, lambda t: CommitOffsets(t, "", -1), answers.append, peer)
    if answers[0].error is Code.NONE:  # type: ignore[union-attr]
        assert desk.service.books.commit(group_id, {("t", 0): Committed(1)}) is Code.NONE
    return answers[0].error  # type: ignore[union-attr, no-any-return]


def join(desk: Desk, peer: Peer, group_id: str, *, known: bool = True) -> Code | None:
    """Send a first JoinGroup; return None while the join waits for other members."""
    answers: list[Reply] = []
    desk.service.ask(
        group_id,
        lambda t: JoinGroup(
            t, "", f"m-{group_id}", (Protocol("range", b"m"),), needs_known_id=not known
        ),
        answers.append,
        peer,
    )
    return answers[0].error if answers else None  # type: ignore[union-attr]


def flood(desk: Desk, address: str, *, by_commit: bool, connections: int = 200) -> int:
    """Create all allowed groups from many connections of an address; return the number of groups."""
    for number in range(connections):
        peer = Peer(address)
        for n in range(CAP):
            act = commit if by_commit else join
            if (
                act(desk, peer, f"{address}-{by_commit}-{number}-{n}")
                is Code.GROUP_MAX_SIZE_REACHED
            ):
                break
    return len(list(desk.service))


def test_a_flood_of_offset_commits_leaves_room_for_members_of_the_same_address() -> None:
    """Half of all groups are reserved for members."""
    desk = Desk(MemoryStore())
    flood(desk, "10.0.0.1", by_commit=True)
    assert join(desk, Peer("10.0.0.1"), "mine") is not Code.GROUP_MAX_SIZE_REACHED
    assert (
        sum(1 for n in range(CAP) if commit(desk, Peer("10.0.0.1"), f"again-{n}") is Code.NONE) == 0
    )


def test_a_flood_of_offset_commits_leaves_room_for_commits_of_other_addresses() -> None:
    """Each address takes at most half of the remaining groups."""
    desk = Desk(MemoryStore())
    for number in range(4):
        flood(desk, f"10.0.0.{number}", by_commit=True)
        assert commit(desk, Peer(f"10.0.1.{number}"), f"mine-{number}") is Code.NONE


def test_a_group_whose_offsets_were_deleted_makes_room_before_one_that_has_offsets() -> None:
    """The oldest group has a pending offset, the second one nothing any more, the third an offset."""
    desk = Desk(MemoryStore())
    peer = Peer("10.0.0.1")
    for name in ("pending", "emptied", "kept"):
        assert commit(desk, peer, name) is Code.NONE
    desk.service.books.store_pending("pending", 7, {("t", 1): Committed(2)})
    for name in ("pending", "emptied"):
        desk.service.books.delete_offsets(name, [("t", 0)])
    flood(desk, "10.0.0.2", by_commit=True)
    flood(desk, "10.0.0.3", by_commit=True)
    assert desk.service.get("emptied") is None
    for name in ("pending", "kept"):
        assert desk.service.get(name) is not None


def test_acknowledged_offsets_outlive_every_flood() -> None:
    """No committed offset is dropped to make room."""
    desk = Desk(MemoryStore())
    kept = Peer("10.0.1.1")
    assert commit(desk, kept, "kept") is Code.NONE
    for by_commit in (True, False):
        flood(desk, "10.0.0.1", by_commit=by_commit)
    assert desk.service.books.offsets("kept").entries == {("t", 0): Committed(1)}
    stored = {g.group_id for g in Desk(desk.service._saver.store).service}
    assert (
        stored
        >= {g.group_id for g in desk.service if desk.service.books.offsets(g.group_id).entries}
        > {"kept"}
    )


def test_a_flood_of_members_leaves_room_for_other_addresses() -> None:
    """Groups with members make no room: an address may have no more groups than remain free."""
    desk = Desk(MemoryStore())
    assert flood(desk, "10.0.0.1", by_commit=False) == CAP // 2
    assert join(desk, Peer("10.0.0.2"), "mine") is not Code.GROUP_MAX_SIZE_REACHED


def test_one_connection_leaves_room_for_others_of_its_address() -> None:
    """The connection creates at most as many groups as its address could create afterwards."""
    desk = Desk(MemoryStore())
    flood(desk, "10.0.0.1", by_commit=True, connections=1)
    assert commit(desk, Peer("10.0.0.1"), "mine") is Code.NONE


def test_ids_nobody_came_back_for_make_room_for_their_own_address() -> None:
    """The oldest group is removed first, and only if no group is free."""
    desk = Desk(MemoryStore())
    for number in range(CAP // 2):
        assert join(desk, Peer(), f"fresh-{number}", known=False) is Code.MEMBER_ID_REQUIRED
    assert desk.service.get("fresh-0") is not None
    assert join(desk, Peer(), "one more", known=False) is Code.MEMBER_ID_REQUIRED
    assert (desk.service.get("fresh-0"), desk.service.get("fresh-1") is None) == (None, False)
    assert desk.counters["groups_forgotten"] == 1


def test_a_connection_that_took_its_part_makes_nobody_go() -> None:
    """The connection is refused, and the groups of its address stay."""
    desk = Desk(MemoryStore())
    join(desk, Peer(), "others", known=False)
    greedy = Peer()
    codes = [join(desk, greedy, f"fresh-{n}", known=False) for n in range(CAP)]
    assert codes[-1] is Code.GROUP_MAX_SIZE_REACHED
    assert desk.service.get("others") is not None


def test_a_group_that_goes_gives_its_place_back() -> None:
    """Both counts decrease, so a tool can create and delete groups for ever."""
    desk = Desk(MemoryStore())
    peer = Peer()
    for number in range(3 * CAP):
        assert commit(desk, peer, f"g-{number}") is Code.NONE
        desk.service.ask(f"g-{number}", DeleteGroup, lambda reply: None)
    assert (len(list(desk.service)), peer.created_groups) == (0, 0)


def test_an_address_whose_groups_are_gone_takes_no_memory() -> None:
    """Clients of many addresses come and go; one group of the last address had members."""
    desk = Desk(MemoryStore())
    for number in range(3):
        assert commit(desk, Peer(f"10.0.0.{number}"), f"g-{number}") is Code.NONE
    join(desk, Peer("10.0.0.3"), "g-2")
    desk.service.ask("g-1", DeleteGroup, lambda reply: None)
    for number in (0, 2):
        desk.service._quota.gone(f"g-{number}")
    quota = desk.service._quota
    assert (quota._entries, quota._standing, quota._simple, quota._fresh) == ({}, {}, {}, {})


def test_a_group_with_members_does_not_count_as_offsets_alone() -> None:
    """A group with a commit and a later join takes no place of groups of offsets alone."""
    desk = Desk(MemoryStore())
    for number in range(CAP // 4):
        peer = Peer(f"10.0.2.{number}")
        assert commit(desk, peer, f"g-{number}") is Code.NONE
        assert join(desk, peer, f"g-{number}") is not Code.GROUP_MAX_SIZE_REACHED
    taken = [commit(desk, Peer(f"10.0.3.{n}"), f"simple-{n}") for n in range(CAP)]
    assert taken.count(Code.NONE) == CAP // 2


def test_offsets_from_before_a_start_count() -> None:
    """Half of all groups are reserved for members after a restart, too."""
    desk = Desk(MemoryStore())
    for number in range(CAP // 2):
        assert commit(desk, Peer(f"10.0.3.{number}"), f"simple-{number}") is Code.NONE
    again = Desk(desk.service._saver.store)
    assert commit(again, Peer("10.0.4.1"), "one more") is Code.GROUP_MAX_SIZE_REACHED
    assert join(again, Peer("10.0.4.1"), "mine") is not Code.GROUP_MAX_SIZE_REACHED


def test_a_full_broker_refuses_whoever_asks() -> None:
    """The limit is absolute; existing groups continue."""
    desk = Desk(MemoryStore())
    for number in range(CAP):
        join(desk, Peer(f"10.1.0.{number}"), f"g-{number}")
    assert len(list(desk.service)) == CAP
    assert join(desk, Peer("10.2.0.1"), "one more") is Code.GROUP_MAX_SIZE_REACHED
    assert commit(desk, Peer("10.2.0.1"), "one more") is Code.GROUP_MAX_SIZE_REACHED


def test_a_group_that_is_gone_is_not_looked_at_for_room_whatever_it_was() -> None:
    """A commit created the group, members joined, and a client deleted the group."""
    quota, peer = GroupQuota(), Peer()
    quota.note("g", peer, is_simple=True)
    quota.has_members("g")
    quota.gone("g")
    assert list(quota.fresh(peer, is_simple=True)) == []
    assert list(quota.fresh(peer, is_simple=False)) == []


def test_a_group_gets_its_first_member_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Later joins free no further place among the groups of offsets alone."""
    monkeypatch.setattr(limits, "MAX_GROUPS", 4)
    quota, peer = GroupQuota(), Peer()
    for name in ("a", "b"):
        quota.note(name, peer, is_simple=True)
    assert not quota.may_create(None, is_simple=True)
    for _ in range(3):
        quota.has_members("a")
    assert quota.may_create(None, is_simple=True)
    quota.note("c", peer, is_simple=True)
    assert not quota.may_create(None, is_simple=True)


def test_a_connection_may_create_fewer_groups_than_its_address_has_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first connection gets two of six groups, the next connection of its address one."""
    monkeypatch.setattr(limits, "MAX_GROUPS", 6)
    quota = GroupQuota()
    counts = []
    for connection in (Peer(), Peer()):
        count = 0
        while quota.may_create(connection, is_simple=False):
            quota.note(f"{id(connection)}-{count}", connection, is_simple=False)
            count += 1
        counts.append(count)
    assert counts == [2, 1]


@pytest.mark.parametrize(
    ("is_simple", "own"),
    [
        (False, ["own first", "own second", "own offsets"]),
        (True, ["own offsets", "own first", "own second"]),
    ],
)
def test_empty_groups_of_the_own_address_and_kind_go_first(is_simple: bool, own: list[str]) -> None:
    """Next are the address's other kind, then other addresses, the oldest group first."""
    quota, mine, other = GroupQuota(), Peer("10.0.0.2"), Peer("10.0.0.1")
    for name, peer, kind in (
        ("other", other, False),
        ("own offsets", mine, True),
        ("own first", mine, False),
        ("own second", mine, False),
        ("own gone", mine, False),
        ("restored", None, False),
    ):
        quota.note(name, peer, is_simple=kind)
    quota.gone("own gone")
    names = list(quota.fresh(mine, is_simple=is_simple))
    assert names[:3] == own
    assert sorted(names[3:]) == ["other", "restored"]
    assert list(quota.fresh(mine, is_simple=is_simple)) == []


def test_an_invalid_first_join_takes_no_other_groups_place() -> None:
    """At the limit of groups it gets its own error; a valid join takes the place."""
    desk = Desk(MemoryStore())
    assert join(desk, Peer(), "first", known=False) is Code.MEMBER_ID_REQUIRED
    names = (f"g-{number}" for number in range(CAP))
    while not desk.service._quota.needs_room(Peer(), is_simple=False):
        join(desk, Peer(), next(names), known=False)
    count = len(list(desk.service))
    answers: list[Reply] = []
    invalid = JoinGroup(0, "", "m", (Protocol("range", b""),), session_timeout_ms=1)
    desk.service.ask("new", lambda t: replace(invalid, token=t), answers.append, Peer())
    assert answers[0].error is Code.INVALID_SESSION_TIMEOUT  # type: ignore[union-attr]
    assert desk.service.get("first") is not None
    assert len(list(desk.service)) == count
    join(desk, Peer(), "new", known=False)
    assert desk.service.get("first") is None


def test_a_group_that_waits_for_the_end_of_a_transaction_does_not_make_room() -> None:
    """Its offsets may be committed later; without pending offsets the group is removed first."""
    left = []
    for waits in (True, False):
        desk = Desk(MemoryStore())
        assert join(desk, Peer(), "first", known=False) is Code.MEMBER_ID_REQUIRED
        if waits:
            assert (
                desk.service.books.store_pending("first", 7, {("t", 0): Committed(1)}) is Code.NONE
            )
        for number in range(CAP):
            join(desk, Peer(), f"g-{number}", known=False)
        left.append(desk.service.get("first") is not None)
    assert left == [True, False]


def test_the_places_of_each_kind_and_address_are_counted_exactly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The limit is 20 groups, 10 of them for offsets alone; both addresses create and remove groups."""
    monkeypatch.setattr(limits, "MAX_GROUPS", 20)
    quota, mine, other = GroupQuota(), Peer("10.0.0.1"), Peer("10.0.0.2")

    def left() -> list[int]:
        return [
            quota._groups_left(address, is_simple)
            for address in (None, "10.0.0.1", "10.0.0.2")
            for is_simple in (False, True)
        ]

    assert left() == [20, 10] * 3
    quota.note("a", mine, is_simple=False)
    quota.note("b", mine, is_simple=True)
    quota.note("c", other, is_simple=True)
    quota.note("d", None, is_simple=True)
    assert left() == [16, 7, 14, 6, 15, 6]
    quota.has_members("b")
    quota.has_members("b")
    quota.has_members("unknown")
    assert left() == [16, 8, 14, 8, 15, 7]
    for group_id in ("b", "c", "c", "unknown"):
        quota.gone(group_id)
    assert left() == [18, 9, 17, 9, 18, 9]
    assert (mine.created_groups, other.created_groups) == (1, 0)
    assert not quota.needs_room(mine, is_simple=False)
    for number in range(17):
        quota.note(f"e{number}", other, is_simple=False)
    assert left() == [1, 1, 0, 0, -16, -16]
    asked = [(None, False), (mine, False), (other, True)]
    assert [quota.needs_room(peer, is_simple=kind) for peer, kind in asked] == [False, True, True]
    assert [quota.may_create(peer, is_simple=kind) for peer, kind in asked] == [True, False, False]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_of_offsets_that_gets_a_member_makes_room_for_another_one(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit has one group of offsets for an address; members of either protocol take it out."""
    monkeypatch.setattr(limits, "MAX_GROUPS", 4)
    desk, peer = Desk(MemoryStore()), Peer()
    codes = [commit(desk, peer, "first"), commit(desk, peer, "second")]
    if protocol == "classic":
        join(desk, peer, "first")
    else:
        desk.service.ask(
            "first",
            lambda token: ConsumerGroupHeartbeat(
                token, "m", 0, rebalance_timeout_ms=1_000, subscribed_topic_names=("t",), owned={}
            ),
            lambda reply: None,
            peer,
        )
    codes.append(commit(desk, peer, "second"))
    assert codes == [Code.NONE, Code.GROUP_MAX_SIZE_REACHED, Code.NONE]


@pytest.mark.parametrize(
    ("changes", "error", "groups"),
    [
        ({"session_timeout_ms": 1}, Code.INVALID_SESSION_TIMEOUT, 0),
        ({"protocols": ()}, Code.INCONSISTENT_GROUP_PROTOCOL, 0),
        ({"needs_known_id": True}, Code.MEMBER_ID_REQUIRED, 1),
    ],
)
def test_a_refused_first_join_leaves_no_group_behind_unless_it_got_an_id(
    changes: dict[str, Any], error: Code, groups: int
) -> None:
    """Otherwise unknown clients could fill the broker with empty groups; no peer counts them."""
    desk, peer = Desk(MemoryStore()), Peer()
    refused = replace(JoinGroup(0, "", "m", (Protocol("range", b""),)), **changes)
    answer: list[Reply] = []
    desk.service.ask("g", lambda t: replace(refused, token=t), answer.append, peer)
    assert answer[0].error is error  # type: ignore[union-attr]
    assert (len(list(desk.service)), peer.created_groups) == (groups, groups)

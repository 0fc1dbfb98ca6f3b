"""The facts that a group keeps beside its members, compared after each event of each story."""

from __future__ import annotations

from collections import Counter, deque

import pytest

from faust_assigner.coordinator.classic import ClassicGroup
from faust_assigner.coordinator.consumer import ConsumerGroup
from faust_assigner.coordinator.consumer.book import Book
from faust_assigner.coordinator.consumer.subscriptions import Topics
from faust_assigner.coordinator.effects import Group
from faust_assigner.coordinator.records import MemberState
from faust_assigner.coordinator.states import State
from faust_assigner.coordinator.timers import Purpose
from tests.support.coordination.transcript import transcript
from tests.unit.coordinator.test_transcripts import START_MS, STORIES


def look(group: Group) -> None:
    """Compare the kept facts of a group with its members."""
    protocols = Counter(member.protocol for member in group.describe().members)
    assert Counter(group.member_counts) == protocols
    if isinstance(group, ClassicGroup):
        look_at_classic(group)
    elif isinstance(group, ConsumerGroup) and group._saving is None:
        look_at_consumer(group)


def look_at_consumer(group: ConsumerGroup) -> None:
    """Compare the kept facts of a consumer group with those of its records alone."""
    fresh = Book(group.group_id)
    for record in group.book.records():
        fresh.apply(record)
    assert vars(group.book) == vars(fresh)
    assert list(group.book.members) == list(fresh.members)
    topics, names, patterns = Topics(group.catalogue), group.book.names, group.book.patterns
    found = topics.fingerprint(names.keys(), patterns)
    assert group.topics.fingerprint(names.keys(), patterns) == found
    assert group.topics.catalogue is group.catalogue
    for part in ("_matches", "_results", "_uses", "_seals", "_seal", "_distinct", "_shared"):
        assert getattr(group.topics, part) == getattr(topics, part), part
    timed = group.timers._deadlines
    sessions = {member for purpose, member in timed if purpose == Purpose.SESSION.value}
    assert sessions == group.book.members.keys()
    assert {member for _, member in timed} <= {*sessions, ""}
    revoking = {m for m in sessions if group.book.at(m).state is MemberState.UNREVOKED}
    limited = {member for purpose, member in timed if purpose == Purpose.REBALANCE.value}
    assert limited <= revoking - group.book.classic_members
    assert (group._batch, group._undo, group._held, group._successor) == ([], [], [], None)


def look_at_classic(group: ClassicGroup) -> None:
    """Compare the kept facts of a classic group with its members."""
    roster, timers = group.roster, group.timers
    offers = Counter(name for m in roster for name in {p.name for p in m.protocols})
    assert roster._offers == offers
    assert roster._waiting == {m.member_id for m in roster if m.join_tokens}
    static = {m.instance_id: m.member_id for m in roster if m.instance_id is not None}
    assert roster.instances == static
    assert roster.leader in ({*roster.members} if len(roster) else {None})
    assert not roster.pending & roster.members.keys()
    parked = {m.member_id for m in roster if m.join_tokens or m.sync_tokens}
    timed = {member for purpose, member in timers._deadlines if purpose == Purpose.SESSION.value}
    assert roster.members.keys() - parked <= timed <= roster.members.keys()
    waits = {member for purpose, member in timers._deadlines if purpose == Purpose.PENDING.value}
    assert waits == roster.pending
    assert (group.join_phase.deadline_ms is None) == (group.state is not State.PREPARING)
    assert group.join_phase.initial_wait_ms is None or group.state is State.PREPARING
    assert (group.sync_phase.deadline_ms is None) == (not group.sync_phase.missing)
    assert group.sync_phase.missing <= roster.members.keys()
    assert group.state not in (State.EMPTY, State.DEAD) or not len(roster)
    assert not any(m.sync_tokens for m in roster) or group.state is State.COMPLETING
    assert len(group.saves) <= 2  # the leader may repeat its assignment


@pytest.mark.parametrize("name", STORIES)
def test_each_kept_fact_is_that_of_the_members_after_each_event(name: str) -> None:
    """Counts, instances, timers, deadlines and pending saves have no entry of a departed member."""
    group, steps = STORIES[name]
    deque(transcript(group(), steps, START_MS, look), maxlen=0)

"""Static members (KIP-345): a bounce causes no rebalance, and the old process is fenced."""

from __future__ import annotations

from faust_assigner.coordinator.classic import State
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import Leaver, Protocol, TimersDue
from tests.support.coordination.classic_bench import REBALANCE_MS, SESSION_MS, Bench


def test_a_static_newcomer_needs_no_second_round_trip() -> None:
    """Its instance id identifies the member, so it joins with its first request."""
    bench = Bench()
    token = bench.join(instance_id="i0", needs_known_id=False)
    bench.pass_time(0)
    assert bench.joined(token).error is Code.NONE
    assert bench.joined(token).members[0].instance_id == "i0"


def test_a_bounced_follower_takes_its_place_back_without_a_rebalance() -> None:
    """The member keeps its generation and assignment and gets a new member id."""
    bench = Bench()
    ids = bench.stable(2, instances=True)
    follower = bench.group.roster[ids[1]]
    generation, assignment = bench.group.generation, follower.assignment
    reply = bench.joined(bench.join(instance_id=follower.instance_id))
    assert reply.error is Code.NONE
    assert (reply.generation, reply.leader) == (generation, ids[0])
    assert reply.member_id not in ids
    token = bench.sync(reply.member_id, instance_id=follower.instance_id)
    assert bench.answers[token].assignment == assignment  # type: ignore[union-attr]
    assert bench.group.state is State.STABLE


def test_a_bounced_member_may_bring_other_metadata_as_long_as_the_protocol_stays() -> None:
    """As in Kafka, only a new selected protocol starts a rebalance; Faust's bytes always differ."""
    bench = Bench()
    bench.stable(2, instances=True)
    bench.join(instance_id="i1", protocols=(Protocol("range", b"fresh start"),))
    assert bench.group.state is State.STABLE
    assert b"fresh start" in {m.metadata("range") for m in bench.group.roster}


def test_a_bounced_member_whose_protocols_change_the_choice_starts_a_rebalance() -> None:
    """The group can no longer use its protocol."""
    bench = Bench()
    both = (Protocol("range", b""), Protocol("sticky", b""))
    first = bench.join(instance_id="i0", protocols=both)
    bench.pass_time(0)
    member = bench.joined(first).member_id
    bench.sync(member)
    bench.join(instance_id="i0", protocols=both[1:])
    assert bench.group.state is State.COMPLETING
    assert bench.group.protocol_name == "sticky"


def test_the_old_incarnation_is_fenced_everywhere() -> None:
    """Heartbeat, sync, commit and join with the replaced id return FENCED_INSTANCE_ID."""
    bench = Bench()
    ids = bench.stable(2, instances=True)
    old = ids[1]
    instance = bench.group.roster[old].instance_id
    bench.join(instance_id=instance)
    assert bench.heartbeat(old, instance_id=instance) is Code.FENCED_INSTANCE_ID
    assert bench.commit(old, bench.group.generation, instance) is Code.FENCED_INSTANCE_ID
    assert bench.answers[bench.sync(old, instance_id=instance)].error is Code.FENCED_INSTANCE_ID
    assert bench.joined(bench.join(old, instance_id=instance)).error is Code.FENCED_INSTANCE_ID
    fenced = old, instance, Code.FENCED_INSTANCE_ID
    assert bench.leave(Leaver(old, instance)).results == (fenced,)


def test_a_parked_join_of_the_old_incarnation_is_fenced_when_the_new_one_arrives() -> None:
    """The parked join does not wait for ever and does not become a member again."""
    bench = Bench()
    ids = bench.stable(2, instances=True)
    parked = bench.join(ids[0], instance_id=bench.group.roster[ids[0]].instance_id)
    bench.join(instance_id=bench.group.roster[ids[0]].instance_id)
    assert bench.joined(parked).error is Code.FENCED_INSTANCE_ID


def test_a_parked_join_that_was_fenced_is_not_answered_again() -> None:
    """Only the replacement's own join is parked when the last member joins."""
    bench = Bench()
    leader, follower = bench.stable(2, instances=True)
    instance = bench.group.roster[leader].instance_id
    fenced = bench.join(leader, instance_id=instance)
    bounced = bench.join(instance_id=instance)
    assert bounced not in bench.answers
    last = bench.join(follower, instance_id=bench.group.roster[follower].instance_id)
    assert bench.joined(fenced).error is Code.FENCED_INSTANCE_ID
    assert [bench.joined(token).error for token in (bounced, last)] == [Code.NONE, Code.NONE]


def test_a_newcomer_that_bounced_while_it_waits_outlives_its_session() -> None:
    """Its parked join counts as a heartbeat; only a newcomer that never bounced has the long timeout."""
    bench = Bench()
    (leader,) = bench.stable(1)
    bench.join(instance_id="i9")
    bounced = bench.join(instance_id="i9")
    for _ in range(5):
        bench.pass_time(SESSION_MS - 1)
        bench.heartbeat(leader)
    token = bench.join(leader)
    assert [bench.joined(one).error for one in (bounced, token)] == [Code.NONE, Code.NONE]
    assert len(bench.joined(token).members) == 2


def test_a_follower_that_bounced_before_its_sync_owes_the_sync_of_its_new_id_alone() -> None:
    """After that sync the group stays as it is, however long it lives."""
    bench = Bench()
    leader, follower = bench.stable(2, instances=True)
    instances = {m: bench.group.roster[m].instance_id for m in (leader, follower)}
    for member_id, instance in instances.items():
        bench.join(member_id, instance_id=instance, protocols=(Protocol("range", b"n"),))
    leader = bench.group.roster.leader or ""
    follower = next(m for m in instances if m != leader)
    bench.sync(leader, given={follower: b"F"})
    bounced = bench.joined(bench.join(instance_id=instances[follower])).member_id
    bench.sync(bounced)
    generation = bench.group.generation
    for _ in range(2 * REBALANCE_MS // 5_000):
        bench.pass_time(5_000)
        assert {bench.heartbeat(m) for m in (leader, bounced)} == {Code.NONE}
    assert (bench.group.state, bench.group.generation) == (State.STABLE, generation)


def test_a_bounced_leader_is_told_to_skip_the_assignment() -> None:
    """From version 9 the member leads again, gets the members and must not assign (KIP-814)."""
    bench = Bench()
    ids = bench.stable(2, instances=True)
    instance = bench.group.roster[ids[0]].instance_id
    reply = bench.joined(bench.join(instance_id=instance, can_skip_assignment=True))
    assert reply.skip_assignment
    assert reply.leader == reply.member_id
    assert len(reply.members) == 2


def test_a_bounced_leader_of_an_older_version_sees_its_old_id_lead() -> None:
    """The member does not assign, and no second member becomes the leader."""
    bench = Bench()
    ids = bench.stable(2, instances=True)
    instance = bench.group.roster[ids[0]].instance_id
    reply = bench.joined(bench.join(instance_id=instance))
    assert (reply.skip_assignment, reply.leader, reply.members) == (False, ids[0], ())


def test_a_bounce_while_the_leader_assigns_starts_over() -> None:
    """The leader's assignment would name the old id."""
    bench = Bench()
    ids = bench.stable(2, instances=True)
    tokens = [
        bench.join(
            m, instance_id=bench.group.roster[m].instance_id, protocols=(Protocol("range", b"n"),)
        )
        for m in ids
    ]
    assert bench.group.state is State.COMPLETING
    generation = bench.joined(tokens[0]).generation
    bench.join(instance_id="i1")
    assert bench.group.state is State.PREPARING
    assert bench.group.generation == generation


def test_a_static_member_that_missed_the_join_phase_stays_until_its_session_ends() -> None:
    """The end of a join phase removes absent dynamic members and keeps static members."""
    bench = Bench()
    ids = bench.stable(2, instances=True)
    active, absent = ids
    instance = bench.group.roster[active].instance_id
    token = bench.join(active, instance_id=instance)
    for _ in range(REBALANCE_MS // 5_000):
        bench.pass_time(5_000)
        if absent in bench.group.roster:
            bench.heartbeat(absent, instance_id=bench.group.roster[absent].instance_id)
    assert {m.member_id for m in bench.joined(token).members} == {active, absent}
    bench.sync(active, instance_id=instance, given={})
    for _ in range(3):
        bench.pass_time(SESSION_MS - 1)
        bench.heartbeat(active, instance_id=instance)
    assert absent not in bench.group.roster


def test_an_administrator_removes_a_static_member_by_its_instance_id_alone() -> None:
    """KIP-345's remove-members request has no member id."""
    bench = Bench()
    bench.stable(2, instances=True)
    assert bench.leave(Leaver("", "i1")).results == (("", "i1", Code.NONE),)
    assert bench.leave(Leaver("", "nobody")).results[0][2] is Code.UNKNOWN_MEMBER_ID
    assert bench.group.state is State.PREPARING


def test_an_instance_nobody_knows_with_a_member_id_is_unknown() -> None:
    """The instance was removed or expired: its client must join as a new member."""
    bench = Bench()
    bench.stable(1)
    assert bench.joined(bench.join("m1", instance_id="ghost")).error is Code.UNKNOWN_MEMBER_ID
    assert bench.heartbeat("m1", instance_id="ghost") is Code.UNKNOWN_MEMBER_ID


def test_a_replacement_that_cannot_be_stored_is_undone() -> None:
    """The old id stays valid, and the new member gets the error."""
    bench = Bench()
    ids = bench.stable(2, instances=True)
    before = bench.group.record()
    bench.save_error = Code.NOT_COORDINATOR
    reply = bench.joined(bench.join(instance_id="i1"))
    assert reply.error is Code.NOT_COORDINATOR
    assert bench.group.record() == before
    assert {bench.heartbeat(m) for m in ids} == {Code.NONE}


def test_of_a_replacement_that_cannot_be_stored_nothing_is_kept() -> None:
    """Neither its client nor a pending sync is kept: the old member syncs without a rebalance."""
    bench = Bench()
    leader, follower = bench.stable(2, instances=True)
    news = (Protocol("range", b"news"),)
    for n, member_id in enumerate((leader, follower)):
        instance = bench.group.roster[member_id].instance_id
        bench.join(member_id, instance_id=instance, protocols=news, client_host=f"/{n}")
    bench.sync(bench.group.roster.leader or "", given={follower: b"F"})
    before, generation = bench.group.record(), bench.group.generation
    bench.save_error = Code.NOT_COORDINATOR
    bench.join(
        instance_id=bench.group.roster[follower].instance_id,
        protocols=news,
        client_host="/elsewhere",
    )
    bench.save_error = Code.NONE
    assert bench.group.record() == before
    bench.sync(follower)
    for _ in range(2 * REBALANCE_MS // 5_000):
        bench.pass_time(5_000)
        assert {bench.heartbeat(m) for m in (leader, follower)} == {Code.NONE}
    assert (bench.group.state, bench.group.generation) == (State.STABLE, generation)


def test_a_static_leader_that_missed_the_join_phase_leads_no_longer() -> None:
    """The leader stays a member; a leader must be present to assign."""
    bench = Bench()
    leader, follower = bench.stable(2, instances=True)
    bench.group.roster[leader].session_timeout_ms = 10 * REBALANCE_MS
    bench.heartbeat(leader)
    token = bench.join(follower, instance_id=bench.group.roster[follower].instance_id,
                       protocols=(Protocol("range", b"news"),))  # fmt: skip
    bench.pass_time(REBALANCE_MS)
    assert bench.joined(token).leader == follower
    assert leader in bench.group.roster


def test_an_instance_whose_member_left_is_unknown() -> None:
    """The instance may return as a new member."""
    bench = Bench()
    ids = bench.stable(2, instances=True)
    instance = bench.group.roster[ids[1]].instance_id
    bench.leave(Leaver(ids[1], instance))
    assert bench.heartbeat(ids[1], instance_id=instance) is Code.UNKNOWN_MEMBER_ID
    bench.join(instance_id=instance)
    assert len(bench.group.roster) == 2


def test_absent_static_members_without_patience_do_not_keep_the_timer_ringing() -> None:
    """With rebalance timeout 0 the join phase is checked once a second until the sessions end."""
    bench = Bench()
    bench.stable(2, instances=True)
    for member in bench.group.roster:
        member.rebalance_timeout_ms = 0
    bench.leave(Leaver("", "i1"))
    rings = 0
    while bench.group.state is State.PREPARING and rings < 100:
        bench.now = max(bench.now, bench.group.next_deadline_ms or 0)
        bench.feed(TimersDue())
        rings += 1
    assert rings <= SESSION_MS // 1_000 + 1
    assert bench.group.state is State.EMPTY


def test_two_bounces_in_a_row_leave_one_member_per_instance() -> None:
    """The last joining process is the member."""
    bench = Bench()
    bench.stable(2, instances=True)
    bench.join(instance_id="i1")
    last = bench.joined(bench.join(instance_id="i1")).member_id
    assert bench.group.roster.instances["i1"] == last
    assert len(bench.group.roster) == 2

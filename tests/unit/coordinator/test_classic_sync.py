"""SyncGroup, Heartbeat, LeaveGroup, OffsetCommit and the timers of a running generation."""

from __future__ import annotations

import pytest

from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.classic import State
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import Leaver, Protocol, Saved, SyncGroup
from tests.support.coordination.classic_bench import REBALANCE_MS, SESSION_MS, Bench


def _completing(bench: Bench, members: int = 2) -> list[str]:
    """Return the ids of a group that waits for its leader's assignment, the leader first."""
    ids = bench.stable(members)
    for member_id in ids:
        bench.join(member_id, protocols=(Protocol("range", b"news"),))
    assert bench.group.state is State.COMPLETING
    return sorted(ids, key=lambda m: m != bench.group.roster.leader)


def _synced(bench: Bench, token: int) -> fx.SyncReply:
    reply = bench.answers[token]
    assert isinstance(reply, fx.SyncReply)
    return reply


def test_followers_wait_for_the_leader_and_get_what_it_assigned() -> None:
    """Syncs are parked until the leader's sync; each member gets its own bytes."""
    bench = Bench()
    leader, follower = _completing(bench)
    parked = bench.sync(follower)
    assert parked not in bench.answers
    token = bench.sync(leader, given={leader: b"L", follower: b"F"})
    assert (_synced(bench, token).assignment, _synced(bench, parked).assignment) == (b"L", b"F")


def test_of_many_copies_of_a_parked_sync_the_oldest_is_told_to_try_again() -> None:
    """Eight copies stay parked; every parked copy will get an answer."""
    bench = Bench()
    leader, follower = _completing(bench)
    oldest, *copies = [bench.sync(follower) for _ in range(9)]
    assert _synced(bench, oldest).error is Code.REBALANCE_IN_PROGRESS
    bench.sync(leader, given={follower: b"F"})
    assert {_synced(bench, token).assignment for token in copies} == {b"F"}


def test_a_follower_that_syncs_after_the_leader_is_answered_at_once() -> None:
    """The group is Stable already."""
    bench = Bench()
    leader, follower = _completing(bench)
    bench.sync(leader, given={follower: b"F"})
    assert _synced(bench, bench.sync(follower)).assignment == b"F"


def test_a_member_the_leader_forgot_gets_empty_bytes() -> None:
    """Missing assignments are empty; assignments of unknown members are ignored."""
    bench = Bench()
    leader, follower = _completing(bench)
    bench.sync(leader, given={"ghost": b"x"})
    assert _synced(bench, bench.sync(follower)).assignment == b""
    assert {m.member_id for m in bench.records[-1].members} == {leader, follower}


def test_assignments_are_stored_before_anyone_is_answered() -> None:
    """A failed write is an error for all parked syncs and causes a rebalance."""
    bench = Bench()
    leader, follower = _completing(bench)
    parked = bench.sync(follower)
    bench.save_error = Code.NOT_COORDINATOR
    token = bench.sync(leader, given={leader: b"L"})
    assert {_synced(bench, t).error for t in (parked, token)} == {Code.NOT_COORDINATOR}
    assert bench.group.state is State.PREPARING
    assert all(m.assignment == b"" for m in bench.group.roster)


def test_a_late_save_does_not_complete_the_next_generation() -> None:
    """The members joined again during the write of the former generation's assignment."""
    bench = Bench()
    leader, follower = _completing(bench)
    wanted, given = bench.group.generation, {leader: b"former"}
    asked = SyncGroup(bench.token(), leader, wanted, assignments=given)
    effects = bench.group.step(asked, bench.now)
    (save_id,) = [one.save_id for one in effects if isinstance(one, fx.SaveGroup)]
    assert save_id is not None
    for member_id in (leader, follower):
        bench.join(member_id, protocols=(Protocol("range", b"more"),))
    bench.feed(Saved(save_id, Code.NONE))
    assert (bench.group.state, bench.group.generation) == (State.COMPLETING, wanted + 1)
    assert b"former" not in {member.assignment for member in bench.group.roster}


def test_a_save_that_a_newcomer_overtakes_assigns_nothing() -> None:
    """The group is already preparing the next generation, so the old assignment is dropped."""
    bench = Bench()
    leader, follower = _completing(bench)
    parked = bench.sync(follower)
    token = bench.token()
    request = SyncGroup(token, leader, bench.group.generation, assignments={leader: b"L"})
    (save,) = [e for e in bench.group.step(request, bench.now) if isinstance(e, fx.SaveGroup)]
    bench.join()
    assert bench.group.state is State.PREPARING
    assert save.save_id is not None
    assert bench.group.step(Saved(save.save_id), bench.now) == ()
    assert _synced(bench, parked).error is Code.REBALANCE_IN_PROGRESS
    assert bench.group.state is State.PREPARING


@pytest.mark.parametrize("offset", [-3, -2, -1, 1, 1_000])
def test_a_sync_of_another_generation_is_refused(offset: int) -> None:
    """ILLEGAL_GENERATION: older and newer generations are refused without a change of the group."""
    bench = Bench()
    leader, _ = _completing(bench)
    token = bench.sync(leader, bench.group.generation + offset, {leader: b"x"})
    assert _synced(bench, token).error is Code.ILLEGAL_GENERATION
    assert bench.group.state is State.COMPLETING


def test_a_sync_of_a_stranger_is_refused() -> None:
    """UNKNOWN_MEMBER_ID has priority over every other error."""
    bench = Bench()
    _completing(bench)
    assert _synced(bench, bench.sync("stranger", 77)).error is Code.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("changes", [{"protocol_type": "connect"}, {"protocol_name": "roundrobin"}])
def test_a_sync_under_another_protocol_is_refused(changes: dict[str, str]) -> None:
    """INCONSISTENT_GROUP_PROTOCOL is the error (KIP-559)."""
    bench = Bench()
    leader, _ = _completing(bench)
    assert _synced(bench, bench.sync(leader, **changes)).error is Code.INCONSISTENT_GROUP_PROTOCOL


def test_a_sync_during_the_join_phase_is_told_to_rejoin() -> None:
    """REBALANCE_IN_PROGRESS is the error."""
    bench = Bench()
    _, follower = bench.stable(2)
    bench.join()
    assert _synced(bench, bench.sync(follower)).error is Code.REBALANCE_IN_PROGRESS


def test_a_newcomer_during_sync_sends_parked_members_back_to_join() -> None:
    """Their syncs get REBALANCE_IN_PROGRESS; the aborted generation leaves no assignment."""
    bench = Bench()
    _, follower = _completing(bench)
    parked = bench.sync(follower)
    bench.join()
    assert _synced(bench, parked).error is Code.REBALANCE_IN_PROGRESS


def test_a_leader_that_dies_before_it_assigns_is_replaced() -> None:
    """Its session ends, the parked followers rejoin, and a follower leads the next generation."""
    bench = Bench()
    _leader, follower = _completing(bench)
    parked = bench.sync(follower)
    bench.pass_time(SESSION_MS)
    assert _synced(bench, parked).error is Code.REBALANCE_IN_PROGRESS
    reply = bench.joined(bench.join(follower))
    assert reply.leader == follower
    assert [m.member_id for m in reply.members] == [follower]


def test_a_leader_that_dies_after_it_assigned_costs_one_rebalance() -> None:
    """The heartbeat notifies the members; the remaining member leads."""
    bench = Bench()
    _leader, follower = bench.stable(2)
    for _ in range(4):
        bench.pass_time(SESSION_MS // 4)
        verdict = bench.heartbeat(follower)
    assert verdict is Code.REBALANCE_IN_PROGRESS
    assert bench.joined(bench.join(follower)).leader == follower


def test_members_that_never_sync_are_evicted() -> None:
    """The rebalance timeout removes them although they send heartbeats."""
    bench = Bench()
    leader, follower = _completing(bench)
    bench.sync(leader, given={})
    for _ in range(REBALANCE_MS // 5_000):
        bench.pass_time(5_000)
        for member_id in list(bench.group.roster.members):
            bench.heartbeat(member_id)
    assert ("member_missed_sync", follower) in bench.happened
    assert follower not in bench.group.roster


def test_the_sync_timer_stops_when_everyone_has_synced() -> None:
    """A stable group with heartbeats has no rebalance for hours."""
    bench = Bench()
    members = bench.stable(2)
    generation = bench.group.generation
    for _ in range(2_000):
        bench.pass_time(5_000)
        assert {bench.heartbeat(m) for m in members} == {Code.NONE}
    assert bench.group.generation == generation


@pytest.mark.parametrize(
    ("state", "verdict"),
    [
        (State.STABLE, Code.NONE),
        (State.COMPLETING, Code.NONE),
        (State.PREPARING, Code.REBALANCE_IN_PROGRESS),
    ],
)
def test_heartbeats_say_whether_to_go_on(state: State, verdict: Code) -> None:
    """While completing, the answer is NONE; in the join phase the member must rejoin."""
    bench = Bench()
    member = _completing(bench)[1] if state is State.COMPLETING else bench.stable(2)[1]
    if state is State.PREPARING:
        bench.join()
    assert bench.group.state is state
    assert bench.heartbeat(member) is verdict


@pytest.mark.parametrize("offset", [-2, -1, 1])
def test_heartbeats_of_another_generation_are_refused(offset: int) -> None:
    """ILLEGAL_GENERATION is the error."""
    bench = Bench()
    member = bench.stable(2)[1]
    assert bench.heartbeat(member, bench.group.generation + offset) is Code.ILLEGAL_GENERATION


def test_heartbeats_of_strangers_are_refused_also_by_an_empty_group() -> None:
    """UNKNOWN_MEMBER_ID is the error."""
    bench = Bench()
    assert bench.heartbeat("m", 0) is Code.UNKNOWN_MEMBER_ID
    bench.stable(1)
    assert bench.heartbeat("stranger") is Code.UNKNOWN_MEMBER_ID


def test_a_silent_member_expires_exactly_at_its_session_timeout() -> None:
    """The member does not expire a millisecond earlier."""
    bench = Bench()
    bench.stable(1)
    bench.pass_time(SESSION_MS - 1)
    assert bench.group.state is State.STABLE
    bench.pass_time(1)
    assert bench.group.state is State.EMPTY


def test_a_parked_request_counts_as_a_heartbeat() -> None:
    """A waiting member outlives its session; the answer to its join starts a new session."""
    bench = Bench()
    leader, follower = bench.stable(2)
    token = bench.join(leader)
    for _ in range(6):
        bench.pass_time(SESSION_MS // 2)
        bench.heartbeat(follower)
    assert token not in bench.answers
    bench.join(follower)
    assert bench.joined(token).error is Code.NONE
    bench.pass_time(SESSION_MS - 1)
    assert leader in bench.group.roster


def test_the_last_member_leaves_an_empty_group_with_the_next_generation() -> None:
    """The empty state is stored, so that a restart does not wait for departed members."""
    bench = Bench()
    member = bench.stable(1)[0]
    generation = bench.group.generation
    assert bench.leave(Leaver(member)).results == ((member, None, Code.NONE),)
    assert (bench.group.state, bench.group.generation) == (State.EMPTY, generation + 1)
    assert bench.records[-1].members == ()


def test_leaving_ends_ones_own_parked_requests() -> None:
    """The parked join of a departed member gets an answer."""
    bench = Bench()
    leader, _ = bench.stable(2)
    token = bench.join(leader)
    bench.leave(Leaver(leader))
    assert bench.joined(token).error is Code.UNKNOWN_MEMBER_ID


def test_each_leaver_of_a_batch_gets_its_own_answer() -> None:
    """The batch has known, unknown and repeated members."""
    bench = Bench()
    first, second, _ = bench.stable(3)
    reply = bench.leave(Leaver(first), Leaver("stranger"), Leaver(first), Leaver(second))
    expected = [Code.NONE, Code.UNKNOWN_MEMBER_ID, Code.UNKNOWN_MEMBER_ID, Code.NONE]
    assert [error for *_, error in reply.results] == expected


def test_a_leave_of_strangers_only_does_not_disturb_the_group() -> None:
    """The group does not rebalance."""
    bench = Bench()
    bench.stable(2)
    bench.leave(Leaver("stranger"))
    assert bench.group.state is State.STABLE


def test_members_commit_in_their_generation_and_while_joining() -> None:
    """The current generation may commit in Stable and PreparingRebalance, so no commit is lost."""
    bench = Bench()
    member = bench.stable(2)[1]
    generation = bench.group.generation
    assert bench.commit(member, generation) is Code.NONE
    bench.join()
    assert bench.commit(member, generation) is Code.NONE


def test_a_commit_while_the_leader_assigns_is_told_to_wait() -> None:
    """REBALANCE_IN_PROGRESS: the member is in the new generation and owns no partition yet."""
    bench = Bench()
    member = _completing(bench)[1]
    assert bench.commit(member, bench.group.generation) is Code.REBALANCE_IN_PROGRESS


def test_a_commit_while_the_leader_assigns_is_no_sign_of_life() -> None:
    """Before the assignment, a member that only commits expires with its session, as in Kafka."""
    bench = Bench()
    member = _completing(bench)[1]
    bench.pass_time(SESSION_MS - 1)
    bench.commit(member, bench.group.generation)
    bench.pass_time(1)
    assert bench.commit(member, bench.group.generation) is Code.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("who", "generation", "error"),
    [
        ("member", -1, Code.ILLEGAL_GENERATION),
        ("member", 0, Code.ILLEGAL_GENERATION),
        ("member", 99, Code.ILLEGAL_GENERATION),
        ("stranger", 2, Code.UNKNOWN_MEMBER_ID),
        ("", -1, Code.UNKNOWN_MEMBER_ID),
        ("", 2, Code.UNKNOWN_MEMBER_ID),
    ],
)
def test_fenced_commits_get_their_exact_error(who: str, generation: int, error: Code) -> None:
    """Old, future and missing generations, unknown members, and outsiders are refused."""
    bench = Bench()
    member = bench.stable(2)[1]
    assert bench.commit(member if who == "member" else who, generation) is error


@pytest.mark.parametrize("generation", [1, 3])
def test_a_fenced_commit_is_no_sign_of_life(generation: int) -> None:
    """A member that commits only with a wrong generation expires with its session."""
    bench = Bench()
    member = bench.stable(2)[1]
    assert bench.group.generation == 2
    bench.pass_time(SESSION_MS - 1)
    assert bench.commit(member, generation) is Code.ILLEGAL_GENERATION
    bench.pass_time(1)
    assert bench.commit(member, 2) is Code.UNKNOWN_MEMBER_ID


def test_outsiders_commit_to_an_empty_group() -> None:
    """Tools that reset offsets and consumers without a group commit with generation -1."""
    bench = Bench()
    assert bench.commit() is Code.NONE
    assert bench.commit("m", 3) is Code.UNKNOWN_MEMBER_ID


def test_a_commit_keeps_the_session_alive() -> None:
    """A commit renews the session like a heartbeat."""
    bench = Bench()
    member = bench.stable(1)[0]
    for _ in range(10):
        bench.pass_time(SESSION_MS - 1)
        assert bench.commit(member, bench.group.generation) is Code.NONE
    assert bench.group.state is State.STABLE

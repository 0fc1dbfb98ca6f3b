"""JoinGroup: admission, the end of a join phase, the choice of leader and protocol."""

from __future__ import annotations

import pytest

from faust_assigner.coordinator.classic import GroupLimits, State
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import CommitOffsets, Leaver, Protocol
from tests.support.coordination.classic_bench import NO_DELAY, REBALANCE_MS, SESSION_MS, Bench


def test_a_dynamic_newcomer_is_told_its_id_first() -> None:
    """MEMBER_ID_REQUIRED has the id for the second join; the group has no member yet (KIP-394)."""
    bench = Bench()
    reply = bench.joined(bench.join(needs_known_id=True))
    assert (reply.error, reply.member_id) == (Code.MEMBER_ID_REQUIRED, "m1")
    assert len(bench.group.roster) == 0
    token = bench.join(reply.member_id)
    bench.pass_time(0)
    assert bench.joined(token).error is Code.NONE


def test_an_unused_id_expires_with_its_session_timeout() -> None:
    """A client that never returns does not hold up a join phase for ever."""
    bench = Bench()
    member = bench.stable(1)[0]
    bench.join(needs_known_id=True)
    token = bench.join(member)
    assert token not in bench.answers, "the join phase waits for the id that was handed out"
    bench.pass_time(SESSION_MS)
    assert bench.joined(token).error is Code.NONE


def test_an_unused_id_can_be_given_back() -> None:
    """A leave with a pending id ends the wait for this id and does not disturb a stable group."""
    bench = Bench()
    member = bench.stable(1)[0]
    pending = bench.joined(bench.join(needs_known_id=True)).member_id
    assert bench.leave(Leaver(pending)).results == ((pending, None, Code.NONE),)
    assert bench.group.state is State.STABLE
    pending = bench.joined(bench.join(needs_known_id=True)).member_id
    token = bench.join(member)
    bench.leave(Leaver(pending))
    assert bench.joined(token).error is Code.NONE


def test_an_id_nobody_was_given_is_unknown() -> None:
    """The error is UNKNOWN_MEMBER_ID, and the group does not change."""
    bench = Bench()
    bench.stable(1)
    assert bench.joined(bench.join("stranger")).error is Code.UNKNOWN_MEMBER_ID
    assert bench.group.state is State.STABLE


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001, 0, -1])
def test_a_session_timeout_outside_the_brokers_bounds_is_refused(session_ms: int) -> None:
    """INVALID_SESSION_TIMEOUT: the value is below or above group.min/max.session.timeout.ms."""
    bench = Bench()
    assert (
        bench.joined(bench.join(session_timeout_ms=session_ms)).error
        is Code.INVALID_SESSION_TIMEOUT
    )


@pytest.mark.parametrize("session_ms", [6_000, 1_800_000])
def test_the_bounds_of_the_session_timeout_are_allowed(session_ms: int) -> None:
    """The limits are 6 s and 30 min."""
    bench = Bench()
    token = bench.join(session_timeout_ms=session_ms)
    bench.pass_time(0)
    assert bench.joined(token).error is Code.NONE


def test_protocols_nobody_else_speaks_are_refused() -> None:
    """INCONSISTENT_GROUP_PROTOCOL: the name or the type is different, or no protocol is given."""
    bench = Bench()
    bench.stable(1)
    for changes in (
        {"protocols": (Protocol("other", b""),)},
        {"protocol_type": "connect"},
        {"protocols": ()},
    ):
        assert bench.joined(bench.join(**changes)).error is Code.INCONSISTENT_GROUP_PROTOCOL


def test_the_protocol_is_one_that_all_support_and_most_prefer() -> None:
    """'a' is not common; of 'b' and 'c' the majority's first choice is used."""
    bench = Bench(GroupLimits(initial_rebalance_delay_ms=1_000))
    offers = ["abc", "cb", "cb"]
    tokens = [bench.join(protocols=tuple(Protocol(p, b"") for p in offer)) for offer in offers]
    bench.pass_time(10_000)
    assert {bench.joined(token).protocol_name for token in tokens} == {"c"}


def test_a_protocol_that_one_member_lacks_never_wins() -> None:
    """Two of three members prefer 'a'; the third does not support 'a'."""
    bench = Bench(GroupLimits(initial_rebalance_delay_ms=1_000))
    tokens = [
        bench.join(protocols=tuple(Protocol(p, b"") for p in offer)) for offer in ("ab", "ab", "b")
    ]
    bench.pass_time(10_000)
    assert {bench.joined(token).protocol_name for token in tokens} == {"b"}


def test_only_the_leader_gets_the_members() -> None:
    """The leader gets all members' metadata under the chosen protocol; followers get none."""
    bench = Bench(GroupLimits(initial_rebalance_delay_ms=1_000))
    tokens = [bench.join(protocols=(Protocol("range", b"meta%d" % n),)) for n in range(3)]
    bench.pass_time(10_000)
    leader, *followers = [bench.joined(token) for token in tokens]
    assert leader.leader == leader.member_id
    assert [m.metadata for m in leader.members] == [b"meta0", b"meta1", b"meta2"]
    assert all(f.members == () and f.leader == leader.member_id for f in followers)


def test_a_new_group_waits_for_more_members_while_they_keep_arriving() -> None:
    """Each arrival extends the initial delay, at most to the rebalance timeout (KIP-134)."""
    bench = Bench(GroupLimits(initial_rebalance_delay_ms=3_000))
    first = bench.join(rebalance_timeout_ms=10_000)
    bench.pass_time(2_999)
    bench.join(rebalance_timeout_ms=10_000)
    bench.pass_time(1)
    assert first not in bench.answers, "one arrived during the delay: wait once more"
    bench.pass_time(3_000)
    assert bench.joined(first).generation == 1
    assert len(bench.joined(first).members) == 2


def test_the_initial_delay_ends_at_the_rebalance_timeout_however_many_arrive() -> None:
    """Extensions stop after 10 s although a member arrives every second."""
    bench = Bench(GroupLimits(initial_rebalance_delay_ms=3_000))
    first = bench.join(rebalance_timeout_ms=10_000)
    began = bench.now
    while first not in bench.answers and bench.now < began + 30_000:
        bench.pass_time(1_000)
        bench.join(rebalance_timeout_ms=10_000)
    assert bench.now - began == 10_000


def test_a_group_without_delay_begins_at_once() -> None:
    """With group.initial.rebalance.delay.ms=0 the first member leads generation 1 a tick later."""
    bench = Bench()
    token = bench.join()
    assert bench.group.next_deadline_ms == bench.now
    bench.pass_time(0)
    assert (bench.joined(token).generation, bench.joined(token).leader) == (1, "m1")


def test_an_unchanged_follower_that_joins_a_stable_group_gets_the_current_generation() -> None:
    """The follower may have lost the answer; no rebalance begins."""
    bench = Bench()
    _, follower = bench.stable(2)
    reply = bench.joined(bench.join(follower))
    assert (reply.error, reply.generation, reply.members) == (Code.NONE, bench.group.generation, ())
    assert bench.group.state is State.STABLE


def test_a_follower_with_changed_metadata_starts_a_rebalance() -> None:
    """New bytes under the same protocol must reach the leader."""
    bench = Bench()
    _, follower = bench.stable(2)
    bench.join(follower, protocols=(Protocol("range", b"news"),))
    assert bench.group.state is State.PREPARING


def test_a_leader_that_joins_again_starts_a_rebalance() -> None:
    """A leader with unchanged metadata may have noticed new partitions."""
    bench = Bench()
    leader, _ = bench.stable(2)
    bench.join(leader)
    assert bench.group.state is State.PREPARING


def test_a_lost_join_answer_is_repeated_while_the_group_completes() -> None:
    """The generation stays the same, and the leader gets the members again."""
    bench = Bench()
    token = bench.join()
    bench.pass_time(0)
    first = bench.joined(token)
    again = bench.joined(bench.join(first.member_id))
    assert (again.generation, again.members) == (first.generation, first.members)
    assert bench.group.state is State.COMPLETING


def test_both_copies_of_a_parked_join_get_the_same_answer() -> None:
    """A retry on a new connection does not leave the old connection waiting."""
    bench = Bench()
    leader, follower = bench.stable(2)
    copies = [bench.join(leader), bench.join(leader)]
    bench.join(follower)
    first, second = (bench.joined(token) for token in copies)
    assert (first.generation, first.members) == (second.generation, second.members)


def test_of_many_copies_of_a_parked_join_the_oldest_is_told_to_try_again() -> None:
    """Eight copies stay parked; every parked copy will get an answer."""
    bench = Bench()
    leader, follower = bench.stable(2)
    oldest, *copies = [bench.join(leader) for _ in range(9)]
    assert bench.joined(oldest).error is Code.REBALANCE_IN_PROGRESS
    bench.join(follower)
    assert {bench.joined(token).error for token in copies} == {Code.NONE}


def test_members_that_do_not_rejoin_in_time_are_dropped() -> None:
    """At the rebalance timeout the join phase ends without the silent dynamic member."""
    bench = Bench()
    leader, _ = bench.stable(2)
    token = bench.join(leader, session_timeout_ms=SESSION_MS)
    for _ in range(REBALANCE_MS // 5_000):
        bench.pass_time(5_000)
        if (
            silent := next((m for m in bench.group.roster.members if m != leader), None)
        ) is not None:
            bench.heartbeat(silent)  # alive, but does not rejoin
    assert [m.member_id for m in bench.joined(token).members] == [leader]


def test_when_the_leader_does_not_rejoin_another_member_leads() -> None:
    """The new leader is the first member that rejoined."""
    bench = Bench()
    leader, follower = bench.stable(2)
    token = bench.join(follower, protocols=(Protocol("range", b"news"),))
    bench.pass_time(REBALANCE_MS)
    assert bench.joined(token).leader == follower != leader


def test_a_full_group_refuses_newcomers_in_every_state() -> None:
    """GROUP_MAX_SIZE_REACHED while preparing, completing and stable; members can still join."""
    bench = Bench(GroupLimits(initial_rebalance_delay_ms=0, max_size=2))
    _, follower = bench.stable(2)
    assert bench.joined(bench.join()).error is Code.GROUP_MAX_SIZE_REACHED
    assert bench.joined(bench.join(follower)).error is Code.NONE
    tokens = [bench.join(), bench.join()]
    assert [bench.joined(t).error for t in tokens] == [Code.GROUP_MAX_SIZE_REACHED] * 2


def test_a_member_of_a_full_group_may_repeat_its_join_while_the_phase_lasts() -> None:
    """It counts already; a newcomer does not, nor does a member that has not joined yet."""
    bench = Bench(GroupLimits(initial_rebalance_delay_ms=3_000, max_size=2))
    waiting = [bench.join(), bench.join()]
    again = [bench.join(m) for m in sorted(bench.group.roster.members)]
    assert not bench.answers.keys() & {*waiting, *again}
    assert bench.joined(bench.join()).error is Code.GROUP_MAX_SIZE_REACHED
    bench.pass_time(REBALANCE_MS)
    assert [bench.joined(t).error for t in (*waiting, *again)] == [Code.NONE] * 4


def test_a_group_shrunk_by_its_settings_turns_the_last_rejoining_member_away() -> None:
    """Three members are restored with a limit of two: the third rejoin is refused and removed."""
    bench = Bench()
    members = bench.stable(3)
    bench.group.limits = GroupLimits(initial_rebalance_delay_ms=0, max_size=2)
    tokens = [bench.join(m, protocols=(Protocol("range", b"n"),)) for m in members]
    assert bench.joined(tokens[2]).error is Code.GROUP_MAX_SIZE_REACHED
    assert [bench.joined(t).error for t in tokens[:2]] == [Code.NONE, Code.NONE]
    assert len(bench.group.roster) == 2


def test_ids_handed_out_and_not_used_are_capped() -> None:
    """A flood of first joins cannot grow the group's memory without limit."""
    bench = Bench(GroupLimits(max_pending=3))
    errors = [bench.joined(bench.join(needs_known_id=True)).error for _ in range(5)]
    assert errors == [Code.MEMBER_ID_REQUIRED] * 3 + [Code.GROUP_MAX_SIZE_REACHED] * 2


def test_a_newcomer_parked_too_long_is_given_up_after_five_minutes() -> None:
    """The newcomer's connection may be dead, and no session timeout removes a parked newcomer."""
    bench = Bench(NO_DELAY)
    leader, other = bench.stable(2)
    newcomer = bench.join(rebalance_timeout_ms=600_000, session_timeout_ms=SESSION_MS)
    for _ in range(300):
        bench.pass_time(1_000)
        for member_id in (leader, other):
            bench.heartbeat(member_id)
        if newcomer in bench.answers:
            break
    assert bench.joined(newcomer).error is Code.UNKNOWN_MEMBER_ID


def test_a_repeated_join_of_a_follower_is_a_sign_of_life() -> None:
    """Its session begins anew; a commit of a transaction is none, since its producer sends it."""
    bench = Bench(NO_DELAY)
    leader, follower = bench.stable(2)
    bench.pass_time(SESSION_MS - 1)
    bench.heartbeat(leader)
    assert bench.joined(bench.join(follower)).error is Code.NONE
    bench.pass_time(SESSION_MS - 1)
    bench.heartbeat(leader)
    event = CommitOffsets(bench.token(), follower, bench.group.generation, transactional=True)
    assert bench.ask(event).error is Code.NONE
    assert follower in bench.group.roster
    bench.pass_time(1)
    assert follower not in bench.group.roster

"""Facts of Kafka's tests of classic groups without a second test here; see kafka_tests.csv."""

from __future__ import annotations

import pytest

from faust_assigner.coordinator.classic import GroupLimits, State
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import DeleteGroup, Leaver, Protocol
from tests.support.coordination.classic_bench import NO_DELAY, REBALANCE_MS, SESSION_MS, Bench

CONSUMER = {"protocol_type": "consumer", "protocol_name": "range"}


def _two_allowed(delay_ms: int = 0) -> Bench:
    return Bench(GroupLimits(initial_rebalance_delay_ms=delay_ms, max_size=2))


def test_a_full_group_of_static_members_takes_back_those_it_has() -> None:
    """Members rejoin under their own ids: a third instance and a replacement member are refused."""
    bench = _two_allowed()
    _, follower = bench.stable(2, instances=True)
    instance = bench.group.roster[follower].instance_id
    assert bench.joined(bench.join(instance_id="i9")).error is Code.GROUP_MAX_SIZE_REACHED
    assert bench.joined(bench.join(follower, instance_id=instance)).error is Code.NONE
    assert bench.joined(bench.join(instance_id=instance)).error is Code.GROUP_MAX_SIZE_REACHED
    assert len(bench.group.roster) == 2


def test_ids_are_given_to_more_than_have_room_and_the_last_to_use_one_is_refused() -> None:
    """A pending id does not count as a member."""
    bench = _two_allowed(delay_ms=3_000)
    first = [bench.joined(bench.join(needs_known_id=True)) for _ in range(3)]
    assert {reply.error for reply in first} == {Code.MEMBER_ID_REQUIRED}
    tokens = [bench.join(reply.member_id) for reply in first]
    bench.pass_time(SESSION_MS - 1)
    errors = [bench.joined(token).error for token in tokens]
    assert errors == [Code.NONE, Code.NONE, Code.GROUP_MAX_SIZE_REACHED]


@pytest.mark.parametrize(
    "changes", [{"protocol_type": ""}, {"protocols": ()}], ids=["type", "protocol"]
)
def test_a_first_member_must_name_a_type_and_a_protocol(changes: dict[str, object]) -> None:
    """INCONSISTENT_GROUP_PROTOCOL: the refusal names no protocol type."""
    reply = (bench := Bench()).joined(bench.join(**changes))
    assert (reply.error, reply.protocol_type) == (Code.INCONSISTENT_GROUP_PROTOCOL, None)


def test_joins_and_syncs_are_told_the_protocol_type() -> None:
    """The leader and the follower get the type from both answers (KIP-559)."""
    bench = Bench()
    tokens = [
        bench.join(member_id, protocols=(Protocol("range", b"n"),)) for member_id in bench.stable(2)
    ]
    replies = [bench.joined(token) for token in tokens]
    assert {(reply.protocol_type, reply.protocol_name) for reply in replies} == {
        ("consumer", "range")
    }
    synced = [bench.answers[bench.sync(reply.leader)] for reply in replies]
    assert {(s.protocol_type, s.protocol_name) for s in synced} == {("consumer", "range")}  # type: ignore[union-attr]


def test_the_first_to_come_with_an_id_of_its_own_is_unknown() -> None:
    """UNKNOWN_MEMBER_ID: the group never had members."""
    bench = Bench()
    assert bench.joined(bench.join("stranger")).error is Code.UNKNOWN_MEMBER_ID
    assert bench.group.state is State.EMPTY


def test_a_join_phase_that_none_of_its_static_members_came_to_goes_on() -> None:
    """The newcomer that caused it left; the static members stay for one more rebalance timeout."""
    bench = Bench()
    ids = bench.stable(2, instances=True)
    newcomer = bench.join()
    (gone,) = (m for m in bench.group.roster.members if m not in ids)
    bench.leave(Leaver(gone))
    for _ in range(REBALANCE_MS // 5_000):
        bench.pass_time(5_000)
        for member_id in ids:
            bench.heartbeat(member_id, instance_id=bench.group.roster[member_id].instance_id)
    assert bench.joined(newcomer).error is Code.UNKNOWN_MEMBER_ID
    assert (bench.group.state, set(bench.group.roster.members)) == (State.PREPARING, set(ids))


def test_a_static_member_that_joins_again_under_its_own_id_before_its_sync_changes_nothing() -> (
    None
):
    """The generation is the same, and its sync is accepted."""
    bench = Bench(NO_DELAY)
    token = bench.join(instance_id="i0")
    bench.pass_time(0)
    first = bench.joined(token)
    again = bench.joined(bench.join(first.member_id, instance_id="i0"))
    assert (again.error, again.generation) == (Code.NONE, first.generation)
    bench.sync(first.member_id, instance_id="i0", given={first.member_id: b"all"})
    assert bench.group.state is State.STABLE


def test_a_static_follower_that_joins_again_under_its_own_id_gets_the_current_generation() -> None:
    """The group does not rebalance."""
    bench = Bench()
    ids = bench.stable(2, instances=True)
    generation = bench.group.generation
    reply = bench.joined(bench.join(ids[1], instance_id=bench.group.roster[ids[1]].instance_id))
    assert (reply.generation, reply.leader, bench.group.state) == (generation, ids[0], State.STABLE)


@pytest.mark.parametrize("spoken", ["range", "other"])
def test_a_static_leader_that_joins_again_under_its_own_id_starts_a_rebalance(spoken: str) -> None:
    """Followers may then join with a different protocol."""
    bench = Bench()
    leader, follower = bench.stable(2, instances=True)
    generation = bench.group.generation
    known = {m: bench.group.roster[m].instance_id for m in (leader, follower)}
    both = (Protocol("range", b"m"), Protocol("other", b"m"))
    for member_id in (leader, follower):
        bench.join(member_id, instance_id=known[member_id], protocols=both)
    for member_id in (leader, follower):
        bench.sync(member_id, instance_id=known[member_id])
    assert bench.group.state is State.STABLE
    tokens = [bench.join(leader, instance_id=known[leader], protocols=both)]
    assert bench.group.state is State.PREPARING
    tokens.append(
        bench.join(follower, instance_id=known[follower], protocols=(Protocol(spoken, b"m"),))
    )
    assert {bench.joined(t).generation for t in tokens} == {generation + 2}
    assert {bench.joined(t).protocol_name for t in tokens} == {spoken}


@pytest.mark.parametrize("said", [{}, CONSUMER], ids=["nothing", "the same"])
def test_a_sync_that_names_no_protocol_or_the_right_one_is_taken(said: dict[str, str]) -> None:
    """Clients before version 5 send no protocol."""
    bench = Bench()
    token = bench.join()
    bench.pass_time(0)
    member = bench.joined(token).member_id
    reply = bench.answers[bench.sync(member, given={member: b"all"}, **said)]
    assert (reply.error, reply.assignment) == (Code.NONE, b"all")  # type: ignore[union-attr]


def test_a_static_member_has_another_id_after_each_bounce() -> None:
    """Every replacement of the member has a new id."""
    bench = Bench()
    bench.stable(2, instances=True)
    ids = [bench.joined(bench.join(instance_id="i1")).member_id for _ in range(5)]
    assert len(set(ids)) == 5
    assert len(bench.group.roster) == 2


def test_static_members_leave_in_a_batch_each_with_its_own_answer() -> None:
    """Known members leave; an unknown instance and a mismatched member id are errors."""
    bench = Bench()
    ids = bench.stable(4, instances=True)
    known = {m: bench.group.roster[m].instance_id for m in ids}
    leavers = [Leaver(m, known[m]) for m in ids[:2]]
    reply = bench.leave(*leavers, Leaver("", "nobody"), Leaver("other", known[ids[2]]))
    errors = [error for *_, error in reply.results]
    assert errors == [Code.NONE, Code.NONE, Code.UNKNOWN_MEMBER_ID, Code.FENCED_INSTANCE_ID]
    assert set(bench.group.roster.members) == set(ids[2:])


def test_ids_not_used_yet_leave_in_a_batch_with_members_and_strangers() -> None:
    """Each id has its own result; the join phase waits for no departed member."""
    bench = Bench()
    one, two = bench.stable(2)
    pending = [bench.joined(bench.join(needs_known_id=True)).member_id for _ in range(2)]
    token = bench.join(one, protocols=(Protocol("range", b"news"),))
    reply = bench.leave(*(Leaver(m) for m in (*pending, two, "stranger")))
    assert [e for *_, e in reply.results] == [
        Code.NONE,
        Code.NONE,
        Code.NONE,
        Code.UNKNOWN_MEMBER_ID,
    ]
    assert [m.member_id for m in bench.joined(token).members] == [one]


def test_a_leader_that_lives_but_never_assigns_is_evicted() -> None:
    """After the rebalance timeout the waiting followers must join again."""
    bench = Bench()
    ids = bench.stable(2)
    for member_id in ids:
        bench.join(member_id, protocols=(Protocol("range", b"news"),))
    leader = bench.group.roster.leader or ""
    (follower,) = (m for m in ids if m != leader)
    parked = bench.sync(follower)
    for _ in range(REBALANCE_MS // (SESSION_MS // 2)):
        bench.pass_time(SESSION_MS // 2)
        if leader in bench.group.roster:
            bench.heartbeat(leader)
    assert bench.answers[parked].error is Code.REBALANCE_IN_PROGRESS  # type: ignore[union-attr]
    assert leader not in bench.group.roster


def test_a_deleted_group_answers_a_leave_like_all_else() -> None:
    """COORDINATOR_NOT_AVAILABLE is the error of the whole request."""
    bench = Bench()
    bench.feed(DeleteGroup(bench.token()))
    assert bench.leave(Leaver("m")).error is Code.COORDINATOR_NOT_AVAILABLE

"""Every row of the table of state transitions, and no transition outside the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.classic import NEXT, RULES, Cause, ClassicGroup, State
from faust_assigner.coordinator.errors import Code, CoordinatorBug
from faust_assigner.coordinator.events import (
    CommitOffsets,
    DeleteGroup,
    Event,
    Heartbeat,
    Leaver,
    SyncGroup,
)
from tests.support.coordination.classic_bench import NO_DELAY, SESSION_MS, Bench


def _first_member(bench: Bench) -> None:
    bench.join()


def _delete_empty(bench: Bench) -> None:
    bench.feed(DeleteGroup(bench.token()))


def _all_joined(bench: Bench) -> None:
    bench.join()
    bench.pass_time(0)


def _nobody_joined(bench: Bench) -> None:
    bench.leave(Leaver(bench.stable(1)[0]))


def _leader_assigned(bench: Bench) -> None:
    bench.stable(1)


def _newcomer_while_completing(bench: Bench) -> None:
    _all_joined(bench)
    bench.join()


def _member_leaves_stable(bench: Bench) -> None:
    bench.leave(Leaver(bench.stable(2)[1]))


ROUTES: dict[tuple[State, Cause], Callable[[Bench], None]] = {
    (State.EMPTY, Cause.REBALANCE): _first_member,
    (State.EMPTY, Cause.DELETED): _delete_empty,
    (State.PREPARING, Cause.ALL_JOINED): _all_joined,
    (State.PREPARING, Cause.NOBODY_JOINED): _nobody_joined,
    (State.COMPLETING, Cause.LEADER_ASSIGNED): _leader_assigned,
    (State.COMPLETING, Cause.REBALANCE): _newcomer_while_completing,
    (State.STABLE, Cause.REBALANCE): _member_leaves_stable,
}


@pytest.mark.parametrize("row", NEXT, ids=lambda row: f"{row[0].name}-{row[1].name}")
def test_each_row_of_the_table_is_taken_and_leads_where_it_says(row: tuple[State, Cause]) -> None:
    """The events of a row cause exactly the row's transition, as the last one."""
    bench = Bench()
    ROUTES[row](bench)
    assert bench.group.state is NEXT[row]


def test_no_move_outside_the_table_is_possible() -> None:
    """A cause that a state does not allow is a bug of the broker and raises an error."""
    for state in State:
        for cause in Cause:
            if (state, cause) not in NEXT:
                group = ClassicGroup("g", NO_DELAY, 0)
                group.state = state
                with pytest.raises(CoordinatorBug):
                    group.move(cause)


def test_every_state_answers_every_event() -> None:
    """The table of rules is complete."""
    events = {event for _, event in RULES}
    assert {(state, event) for state in State for event in events} == set(RULES)


def test_a_dead_group_sends_members_to_look_for_their_coordinator() -> None:
    """COORDINATOR_NOT_AVAILABLE: the client must find the coordinator and join again."""
    bench = Bench()
    _delete_empty(bench)
    assert bench.dropped
    requests: list[Event] = [
        bench.join_event(),
        SyncGroup(bench.token(), "m", 1),
        Heartbeat(bench.token(), "m", 1),
        CommitOffsets(bench.token()),
    ]
    assert {bench.ask(request).error for request in requests} == {Code.COORDINATOR_NOT_AVAILABLE}
    assert bench.group.next_deadline_ms is None


@pytest.mark.parametrize("route", [_first_member, _all_joined, _leader_assigned])
def test_a_group_with_members_is_not_deleted(route: Callable[[Bench], None]) -> None:
    """NON_EMPTY_GROUP is the error in every state with members."""
    bench = Bench()
    route(bench)
    token = bench.token()
    bench.feed(DeleteGroup(token))
    assert bench.answers[token] == fx.DeleteReply(token, Code.NON_EMPTY_GROUP)


def test_a_record_restores_the_group_it_was_made_from() -> None:
    """Members, protocol, leader, generation and assignments are restored; sessions start anew."""
    bench = Bench()
    bench.stable(3)
    again = ClassicGroup.restore(bench.records[-1], NO_DELAY, bench.now)
    assert again.record() == bench.group.record()
    assert again.state is State.STABLE
    assert again.next_deadline_ms == bench.now + SESSION_MS


def test_a_group_that_is_to_join_again_after_a_start_waits_for_its_rebalance_timeout() -> None:
    """Otherwise a member that never returns would delay the group for its whole session."""
    bench = Bench()
    bench.stable(2)
    saved = bench.records[-1]
    members = tuple(replace(member, rebalance_timeout_ms=5_000) for member in saved.members)
    record = replace(saved, members=members, settled=False)
    again = ClassicGroup.restore(record, NO_DELAY, bench.now)
    assert again.state is State.PREPARING
    assert again.next_deadline_ms == bench.now + 5_000 < bench.now + SESSION_MS


def test_a_generation_number_is_not_used_twice_after_a_crash_before_the_leader_assigned() -> None:
    """The record of an unsettled generation restores to a group whose members must join again."""
    bench = Bench()
    bench.stable(1)
    bench.join(bench.group.roster.leader or "")
    assert not bench.records[-1].settled
    again = Bench()
    again.group = ClassicGroup.restore(bench.records[-1], NO_DELAY, again.now)
    member_id = bench.group.roster.leader or ""
    assert again.heartbeat(member_id, bench.group.generation) is Code.REBALANCE_IN_PROGRESS
    token = again.join(member_id)
    assert again.joined(token).generation == bench.group.generation + 1

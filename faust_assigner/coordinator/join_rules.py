"""The rules for a JoinGroup in a classic group: refused, parked, repeated or answered at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.errors import Code, CoordinatorBug
from faust_assigner.coordinator.events import JoinGroup
from faust_assigner.coordinator.members import PARKED_DUPLICATES, Member
from faust_assigner.coordinator.refusals import check_join
from faust_assigner.coordinator.rounds import NEW_MEMBER_JOIN_TIMEOUT_MS, GroupRounds
from faust_assigner.coordinator.states import State
from faust_assigner.coordinator.timers import Purpose


def join(group: GroupRounds, event: JoinGroup) -> None:
    """Apply the JoinGroup: refuse it, hand out an id, or park it until the join phase ends."""
    error = check_join(group, event)
    if error is Code.GROUP_MAX_SIZE_REACHED and event.member_id in group.roster:
        group.report("member_turned_away", event.member_id)
        group.forget(event.member_id, error)
        group.membership_changed()
    if error is not Code.NONE:
        _answer_refusal(group, event, error)
    elif not event.member_id:
        _join_newcomer(group, event)
    elif event.member_id in group.roster:
        REJOIN[group.state](group, event, group.roster[event.member_id])
    else:
        _admit_member(group, event, event.member_id)


def _join_newcomer(group: GroupRounds, event: JoinGroup) -> None:
    if event.instance_id is not None and event.instance_id in group.roster.instances:
        _replace_static(group, event, group.roster.instances[event.instance_id])
    elif event.instance_id is not None or not event.needs_known_id:
        _admit_member(group, event, event.new_member_id)
    elif len(group.roster.pending) >= group.limits.max_pending:
        _answer_refusal(group, event, Code.GROUP_MAX_SIZE_REACHED)
    else:
        group.roster.pending.add(event.new_member_id)
        group.timers.set(
            Purpose.PENDING, event.new_member_id, group.now_ms + event.session_timeout_ms
        )
        _answer_refusal(group, event, Code.MEMBER_ID_REQUIRED, event.new_member_id)


def _admit_member(group: GroupRounds, event: JoinGroup, member_id: str) -> None:
    # A new member sends no heartbeats while its join is parked, so the broker does not notice
    # that its client is gone. After this timeout, abandoned joins are removed.
    group.timers.set(Purpose.SESSION, member_id, group.now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS)
    group.timers.drop(Purpose.PENDING, member_id)
    if not len(group.roster):
        group.protocol_type = event.protocol_type
    group.roster.admit(event, member_id)
    group.join_phase.newcomer_since_delay = True
    group.report("member_joined", member_id, event.reason or "")
    group.membership_changed()


def _replace_static(group: GroupRounds, event: JoinGroup, old_id: str) -> None:
    old_leader = group.roster.leader or ""
    before = group.roster[old_id]
    group.answer_parked(before, Code.FENCED_INSTANCE_ID)
    member = replace(before, member_id=event.new_member_id, is_new=False)
    _put_member(group, before, member)
    _update(group, member, event)
    group.renew_session(member)
    group.report("static_member_replaced", member.member_id, old_id)
    if group.state is State.STABLE and group.roster.select_protocol() == group.protocol_name:
        group.save(
            group.record(),
            lambda error: _finish_static_replacement(
                group, event, member, before, old_leader, error
            ),
        )
    else:
        group.membership_changed()


def _put_member(group: GroupRounds, old: Member, new: Member) -> None:
    group.roster.put(old.member_id, new)
    group.timers.rename(Purpose.SESSION, old.member_id, new.member_id)
    group.sync_phase.rename(old.member_id, new.member_id)


def _finish_static_replacement(
    group: GroupRounds,
    event: JoinGroup,
    member: Member,
    before: Member,
    old_leader: str,
    error: Code,
) -> None:
    if event.token not in member.join_tokens:
        return  # a concurrent rebalance has answered this JoinGroup, or will answer it
    group.roster.park(member, ())
    if error is not Code.NONE:
        _put_member(group, member, before)
        _answer_refusal(group, event, error)
    elif event.can_skip_assignment:
        leads = group.roster.leader == member.member_id
        reply = group.join_reply(member, event.token, with_members=leads, skip_assignment=leads)
        group.out.append(reply)
    else:
        # With the old leader's id in the answer, an older client computes no assignment. A stable
        # group would not distribute such an assignment.
        reply = group.join_reply(member, event.token, with_members=False)
        group.out.append(replace(reply, leader=old_leader))


def _rejoin_preparing(group: GroupRounds, event: JoinGroup, member: Member) -> None:
    _update(group, member, event)
    group.maybe_complete_join()


def _rejoin_completing(group: GroupRounds, event: JoinGroup, member: Member) -> None:
    if member.protocols == event.protocols:
        # The member retries, because the answer of the join phase was lost: repeat the answer.
        _repeat_join(group, event, member, with_members=group.roster.leader == member.member_id)
    else:
        _update(group, member, event)
        group.rebalance()


def _rejoin_stable(group: GroupRounds, event: JoinGroup, member: Member) -> None:
    if group.roster.leader == member.member_id or member.protocols != event.protocols:
        _update(group, member, event)
        group.rebalance()
    else:
        _repeat_join(group, event, member, with_members=False)


def _rejoin_unknown(group: GroupRounds, event: JoinGroup, member: Member) -> None:
    raise CoordinatorBug(f"group {group.group_id} is Empty but has member {member.member_id}")


def _repeat_join(
    group: GroupRounds, event: JoinGroup, member: Member, *, with_members: bool
) -> None:
    group.renew_session(member)
    group.out.append(group.join_reply(member, event.token, with_members=with_members))


def _update(group: GroupRounds, member: Member, event: JoinGroup) -> None:
    group.roster.offer(member, event.protocols)
    member.session_timeout_ms = event.session_timeout_ms
    member.rebalance_timeout_ms = event.rebalance_timeout_ms
    member.client_id, member.client_host = event.client_id, event.client_host
    tokens = (*member.join_tokens, event.token)
    group.roster.park(member, tokens[-PARKED_DUPLICATES:])
    for token in tokens[:-PARKED_DUPLICATES]:
        group.out.append(fx.JoinReply(token, Code.REBALANCE_IN_PROGRESS, member.member_id))


def _answer_refusal(
    group: GroupRounds, event: JoinGroup, error: Code, member_id: str | None = None
) -> None:
    shown = event.member_id if member_id is None else member_id
    group.out.append(fx.JoinReply(event.token, error, shown))


REJOIN: Final[Mapping[State, Callable[[GroupRounds, JoinGroup, Member], None]]] = {
    State.EMPTY: _rejoin_unknown,
    State.PREPARING: _rejoin_preparing,
    State.COMPLETING: _rejoin_completing,
    State.STABLE: _rejoin_stable,
}

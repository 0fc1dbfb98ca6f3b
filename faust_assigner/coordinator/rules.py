"""The rules of a classic group for all events except JoinGroup: each function is a cell of ``RULES``."""

from __future__ import annotations

from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator import events as ev
from faust_assigner.coordinator.absent import answer_absent
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.members import PARKED_DUPLICATES
from faust_assigner.coordinator.refusals import (
    check_commit,
    check_generation,
    check_member,
    check_sync,
    find_leaver,
)
from faust_assigner.coordinator.rounds import GroupRounds
from faust_assigner.coordinator.states import Cause
from faust_assigner.coordinator.timers import Purpose

# -- syncing ---------------------------------------------------------------------------------


def sync_too_early(group: GroupRounds, event: ev.SyncGroup) -> None:
    """Refuse a sync before the join phase has ended."""
    error = check_sync(group, event)
    if error is Code.NONE:
        error = Code.REBALANCE_IN_PROGRESS
    group.out.append(fx.SyncReply(event.token, error))


def sync_completing(group: GroupRounds, event: ev.SyncGroup) -> None:
    """Park the sync until the leader's assignment is saved. The leader's own sync starts the save."""
    error = check_sync(group, event)
    if error is not Code.NONE:
        group.out.append(fx.SyncReply(event.token, error))
        return
    group.sync_phase.synced(event.member_id)
    member = group.roster[event.member_id]
    tokens = (*member.sync_tokens, event.token)
    member.sync_tokens = tokens[-PARKED_DUPLICATES:]
    for token in tokens[:-PARKED_DUPLICATES]:
        group.out.append(fx.SyncReply(token, Code.REBALANCE_IN_PROGRESS))
    if event.member_id == group.roster.leader:
        given = {m.member_id: event.assignments.get(m.member_id, b"") for m in group.roster}
        generation = group.generation
        group.save(
            group.record(given), lambda error: group.assignment_saved(given, generation, error)
        )


def sync_stable(group: GroupRounds, event: ev.SyncGroup) -> None:
    """Answer the sync with the assignment."""
    error = check_sync(group, event)
    if error is not Code.NONE:
        group.out.append(fx.SyncReply(event.token, error))
        return
    group.sync_phase.synced(event.member_id)
    group.renew_session(group.roster[event.member_id])
    group.out.append(group.sync_reply(group.roster[event.member_id], event.token))


# -- staying ---------------------------------------------------------------------------------


def heartbeat(group: GroupRounds, event: ev.Heartbeat, calm: Code = Code.NONE) -> None:
    """Answer a heartbeat. A valid heartbeat extends the session and is answered with ``calm``."""
    error = check_generation(group, event)
    if error is Code.NONE:
        _renew_session_of(group, event.member_id)
        error = calm
    group.out.append(fx.HeartbeatReply(event.token, error))


def heartbeat_preparing(group: GroupRounds, event: ev.Heartbeat) -> None:
    """Answer a heartbeat with REBALANCE_IN_PROGRESS, so that the member joins again."""
    heartbeat(group, event, Code.REBALANCE_IN_PROGRESS)


def commit_empty(group: GroupRounds, event: ev.CommitOffsets) -> None:
    """Answer a commit to a group without members."""
    # Generation -1: an administrator, or a consumer that stores offsets without membership.
    known = check_member(group.roster, event.member_id, event.instance_id)
    group.out.append(fx.CommitReply(event.token, Code.NONE if event.generation < 0 else known))


def commit(group: GroupRounds, event: ev.CommitOffsets) -> None:
    """Answer a commit; a valid commit extends the session."""
    error = check_commit(group, event)
    if error is Code.NONE and not event.transactional:
        _renew_session_of(group, event.member_id)
    group.out.append(fx.CommitReply(event.token, error))


def commit_completing(group: GroupRounds, event: ev.CommitOffsets) -> None:
    """Refuse the commit of a member that waits for its assignment."""
    error = check_commit(group, event)  # a refused commit does not extend the session
    if error is Code.NONE and not event.transactional:
        error = Code.REBALANCE_IN_PROGRESS
    group.out.append(fx.CommitReply(event.token, error))


def _renew_session_of(group: GroupRounds, member_id: str) -> None:
    member = group.roster[member_id]
    if not member.is_new:  # a new member has the longer join timeout instead of its session
        group.renew_session(member)


# -- leaving ---------------------------------------------------------------------------------


def leave(group: GroupRounds, event: ev.LeaveGroup) -> None:
    """Remove the members that a LeaveGroup names."""
    before = len(group.roster)
    results = tuple((w.member_id, w.instance_id, _remove_leaver(group, w)) for w in event.leavers)
    group.out.append(fx.LeaveReply(event.token, Code.NONE, results))
    if len(group.roster) < before:
        group.membership_changed()
    else:
        group.maybe_complete_join()  # the join phase may have waited only for the removed id


def _remove_leaver(group: GroupRounds, leaver: ev.Leaver) -> Code:
    if leaver.instance_id is None and leaver.member_id in group.roster.pending:
        group.roster.pending.remove(leaver.member_id)
        group.timers.drop(Purpose.PENDING, leaver.member_id)
        return Code.NONE
    member_id, error = find_leaver(group.roster, leaver)
    if error is Code.NONE:
        group.report("member_left", member_id, leaver.reason or "")
        group.forget(member_id, Code.UNKNOWN_MEMBER_ID)
    return error


def delete(group: GroupRounds, event: ev.DeleteGroup) -> None:
    """Delete a group without members."""
    group.move(Cause.DELETED)
    group.out += [fx.DropGroup(group.group_id), fx.DeleteReply(event.token, Code.NONE)]


def refuse_delete(group: GroupRounds, event: ev.DeleteGroup) -> None:
    """Refuse to delete a group with members."""
    group.out.append(fx.DeleteReply(event.token, Code.NON_EMPTY_GROUP))


# -- the rest --------------------------------------------------------------------------------


def catalogue_changed(group: GroupRounds, event: ev.CatalogueChanged) -> None:
    """Keep the catalogue for a conversion to a consumer group; classic members watch topics themselves."""
    group.catalogue = event.catalogue


def fetch(group: GroupRounds, event: ev.FetchOffsets) -> None:
    """Allow every fetch of offsets."""
    group.out.append(fx.FetchReply(event.token, Code.NONE))


def timers_due(group: GroupRounds, event: ev.TimersDue) -> None:
    """Fire the timers that are due."""
    group.fire_timers()


def saved(group: GroupRounds, event: ev.Saved) -> None:
    """Continue after a save."""
    done = group.saves.pop(event.save_id, None)
    if done is not None:
        done(event.error)


def answer_dead(group: GroupRounds, event: ev.Event) -> None:
    """Answer a request to a dead group."""
    group.out.append(answer_absent(event, Code.COORDINATOR_NOT_AVAILABLE))


def nothing(group: GroupRounds, event: ev.Event) -> None:
    """Ignore the event: a dead group has no timers, and a classic group has no computed target."""

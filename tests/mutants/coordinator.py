"""Planted bugs of the classic group; those of commits and its surroundings are in ``groups``.

The simulator sees every one of them by itself; unit tests are named beside it where there are any.
"""

from __future__ import annotations

from tests.mutants import Mutant

_MEMBERS = "faust_assigner/coordinator/members.py"
_ROUNDS = "faust_assigner/coordinator/rounds.py"
_CLASSIC = "faust_assigner/coordinator/classic.py"
_ABSENT = "faust_assigner/coordinator/absent.py"

_SIMULATOR = (
    "tests/property/machines/test_classic_machine.py::test_random_interleavings_keep_every_promise"
)
_UNIT = "tests/unit/coordinator/test_classic_"
_JOIN, _SYNC, _STATIC = (
    f"{_UNIT}join.py::test_",
    f"{_UNIT}sync.py::test_",
    f"{_UNIT}static.py::test_",
)
_MOVES = f"{_UNIT}transitions.py::test_"


def bug(file: str, story: str, old: str, new: str, *units: str) -> Mutant:
    """A bug that the simulator sees, and these unit tests."""
    return Mutant(story=story, file=file, old=old, new=new, red=(_SIMULATOR, *units))


_ROSTER = (
    bug(
        _MEMBERS,
        "a protocol that not all members offer is taken",
        "        candidates = self.common_protocols()\n",
        "        candidates = frozenset(p.name for m in self for p in m.protocols)\n",
        f"{_JOIN}a_protocol_that_one_member_lacks_never_wins",
    ),
    bug(
        _MEMBERS,
        "a leader that has not rejoined is kept",
        "        if self.leader is not None and self.members[self.leader].join_tokens:\n",
        "        if self.leader is not None:\n",
        f"{_STATIC}a_static_leader_that_missed_the_join_phase_leads_no_longer",
    ),
    bug(
        _MEMBERS,
        "a leader that rejoined gives way to an earlier member",
        "self.members[self.leader].join_tokens:\n            return True",
        "False:\n            return True",
    ),
    bug(
        _MEMBERS,
        "the protocol with the fewest votes wins",
        "return max(votes, key=",
        "return min(votes, key=",
        f"{_JOIN}the_protocol_is_one_that_all_support_and_most_prefer",
    ),
    bug(
        _MEMBERS,
        "members vote for what they like least",
        "next((p.name for p in self.protocols if p.name in candidates), None)",
        "next((p.name for p in reversed(self.protocols) if p.name in candidates), None)",
    ),
    bug(
        _MEMBERS,
        "the leader sees what members say under another protocol",
        "(p.metadata for p in self.protocols if p.name == protocol_name)",
        "(p.metadata for p in self.protocols)",
    ),
    bug(
        _MEMBERS,
        "a group whose leader left has none",
        "            self.leader = next(iter(self.members), None)\n",
        "            self.leader = None\n",
    ),
    bug(
        _MEMBERS,
        "an instance id outlives its member",
        "            self.instances.pop(member.instance_id, None)\n",
        "            pass\n",
        f"{_STATIC}an_instance_whose_member_left_is_unknown",
    ),
    bug(
        _MEMBERS,
        "a static leader that bounced does not lead any more",
        "        if self.leader == old_id:\n            self.leader = member.member_id\n",
        "",
        f"{_STATIC}a_bounced_leader_is_told_to_skip_the_assignment",
    ),
    bug(
        _MEMBERS,
        "a join phase does not wait for ids that were handed out",
        "return not self.pending and len(",
        "return len(",
        f"{_JOIN}an_unused_id_expires_with_its_session_timeout",
    ),
    bug(
        _MEMBERS,
        "what a member offered counts on after it left",
        "        self._discount(member)\n        if member.instance_id",
        "        if member.instance_id",
    ),
    bug(
        _MEMBERS,
        "the fastest member sets the pace",
        "return max((m.rebalance_timeout_ms",
        "return min((m.rebalance_timeout_ms",
    ),
    bug(
        _MEMBERS,
        "a static newcomer is let in beside its old incarnation's place in line",
        "[member if m.member_id == old_id else m for m in self]",
        "[*(m for m in self if m.member_id != old_id), member]",
    ),
    bug(
        _MEMBERS,
        "a restart loses assignments",
        "            record.protocols,\n            record.assignment,\n",
        "            record.protocols,\n",
        f"{_MOVES}a_record_restores_the_group_it_was_made_from",
    ),
)

_PHASES = (
    bug(
        _ROUNDS,
        "a restart begins at generation 0",
        "        group.generation = record.generation\n",
        "",
        f"{_MOVES}a_record_restores_the_group_it_was_made_from",
    ),
    bug(
        _ROUNDS, "a restart forgets who leads", "        group.roster.leader = record.leader\n", ""
    ),
    bug(
        _ROUNDS,
        "a generation without assignment is restored as if it had one",
        "        if not record.settled:\n",
        "        if False:\n",
        f"{_MOVES}a_generation_number_is_not_used_twice_after_a_crash_before_the_leader_assigned",
    ),
    bug(
        _ROUNDS,
        "that a generation has begun is not stored",
        "        self._out.append(fx.SaveGroup(self.record(settled=False)))\n",
        "",
        f"{_MOVES}a_generation_number_is_not_used_twice_after_a_crash_before_the_leader_assigned",
    ),
    bug(
        _ROUNDS,
        "restored members have no session",
        "            group.timers.set(Purpose.SESSION, member.member_id, "
        "now_ms + member.session_timeout_ms)\n",
        "",
        f"{_MOVES}a_record_restores_the_group_it_was_made_from",
    ),
    bug(
        _ROUNDS,
        "a restored join phase has no end",
        "            group._join_deadline_ms = now_ms + group.roster.rebalance_timeout_ms()\n",
        "            pass\n",
    ),
    bug(
        _ROUNDS,
        "no alarm for members that do not sync",
        "(self._join_deadline_ms, self._sync_deadline_ms, ",
        "(self._join_deadline_ms, ",
        f"{_SYNC}members_that_never_sync_are_evicted",
    ),
    bug(
        _ROUNDS,
        "no alarm for ids that were handed out",
        "self._sync_deadline_ms, self.timers.earliest())",
        "self._sync_deadline_ms, min(filter(None, (\n"
        "            self.timers.get(Purpose.SESSION, m.member_id) for m in self.roster)), default=None))",
    ),
    bug(
        _ROUNDS,
        "parked syncs of an aborted generation are not answered",
        "            self._fail_parked_syncs(Code.REBALANCE_IN_PROGRESS)\n",
        "            pass\n",
        f"{_SYNC}a_newcomer_during_sync_sends_parked_members_back_to_join",
    ),
    bug(
        _ROUNDS,
        "the sync timer of an old generation goes on",
        "        self._stop_waiting_for_syncs()\n        if self.state",
        "        if self.state",
    ),
    bug(
        _ROUNDS,
        "a new group does not wait for more members",
        "            delay = self.limits.initial_rebalance_delay_ms\n            self._last",
        "            delay = 0\n            self._last",
        f"{_JOIN}a_new_group_waits_for_more_members_while_they_keep_arriving",
    ),
    bug(
        _ROUNDS,
        "a new group waits although nobody arrives",
        "if self._initial_wait_ms and self._newcomer_since_delay and",
        "if self._initial_wait_ms and",
    ),
    bug(
        _ROUNDS,
        "the initial delay is never extended",
        "if self._initial_wait_ms and self._newcomer_since_delay and",
        "if False and",
        f"{_JOIN}a_new_group_waits_for_more_members_while_they_keep_arriving",
    ),
    bug(
        _ROUNDS,
        "a full house ends the initial delay early",
        "        waits_on_purpose = self._initial_wait_ms is not None\n",
        "        waits_on_purpose = False\n",
    ),
    bug(
        _ROUNDS,
        "the join phase ends as soon as one member has joined",
        "not waits_on_purpose and self.roster.everyone_joined():",
        "not waits_on_purpose and self.roster.joined():",
        f"{_SYNC}a_parked_request_counts_as_a_heartbeat",
    ),
    bug(
        _ROUNDS,
        "static members that missed the join phase are dropped",
        "if not m.join_tokens and m.instance_id is None]:",
        "if not m.join_tokens]:",
        f"{_STATIC}a_static_member_that_missed_the_join_phase_stays_until_its_session_ends",
    ),
    bug(
        _ROUNDS,
        "members that missed the join phase stay",
        "if not m.join_tokens and m.instance_id is None]:",
        "if False]:",
        f"{_JOIN}members_that_do_not_rejoin_in_time_are_dropped",
    ),
    bug(
        _ROUNDS,
        "an empty group keeps its protocol and is not stored",
        "            self.protocol_name = None\n"
        "            self._move(Cause.NOBODY_JOINED)\n"
        "            self._out.append(fx.SaveGroup(self.record()))\n",
        "            self._move(Cause.NOBODY_JOINED)\n",
        f"{_SYNC}the_last_member_leaves_an_empty_group_with_the_next_generation",
    ),
    bug(
        _ROUNDS,
        "absent static members are waited for without a timer",
        (
            "            self._join_deadline_ms = self._now + max(\n"
            "                self.roster.rebalance_timeout_ms(), LEAST_WAIT_MS\n"
            "            )"
        ),
        "            pass",
    ),
    bug(
        _ROUNDS,
        "a new generation gets the number of the old one",
        "        self.generation += 1\n        self.protocol_name = self.roster",
        "        self.protocol_name = self.roster",
    ),
    bug(
        _ROUNDS,
        "the answer of a join phase starts no session",
        "            member.is_new = False\n            self._renew_session(member)\n",
        "            member.is_new = False\n",
    ),
    bug(
        _ROUNDS,
        "followers get the list of members",
        "with_members=member.member_id == self.roster.leader)\n"
        "            self._out += [replace(reply, token=token)",
        "with_members=True)\n            self._out += [replace(reply, token=token)",
        f"{_JOIN}only_the_leader_gets_the_members",
    ),
    bug(
        _ROUNDS,
        "only one copy of a parked join is answered",
        "for token in member.join_tokens]\n            self.roster.park(",
        "for token in member.join_tokens[-1:]]\n            self.roster.park(",
        f"{_JOIN}both_copies_of_a_parked_join_get_the_same_answer",
    ),
    bug(
        _ROUNDS,
        "nobody is waited for in the sync phase",
        "        self._unsynced = {m.member_id for m in self.roster}\n",
        "",
        f"{_SYNC}members_that_never_sync_are_evicted",
    ),
    bug(
        _ROUNDS,
        "the sync timer goes on although all have synced",
        "        if not self._unsynced:\n            self._sync_deadline_ms = None\n",
        "",
        f"{_SYNC}the_sync_timer_stops_when_everyone_has_synced",
    ),
    bug(
        _ROUNDS,
        "an assignment that is not on disk is used",
        "        if error is not Code.NONE:\n"
        "            self._fail_parked_syncs(error)\n"
        "            self._rebalance()\n"
        "            return\n",
        "",
        f"{_SYNC}assignments_are_stored_before_anyone_is_answered",
    ),
    bug(
        _ROUNDS,
        "a member the leader forgot keeps its old assignment",
        'given.get(member.member_id, b"")',
        "given.get(member.member_id) or member.assignment",
    ),
    bug(
        _ROUNDS,
        "everybody gets the first assignment",
        'given.get(member.member_id, b"")',
        "next(iter(given.values()))",
        f"{_SYNC}followers_wait_for_the_leader_and_get_what_it_assigned",
    ),
    bug(
        _ROUNDS,
        "parked syncs of a failed save are dropped",
        "            self._out += [fx.SyncReply(token, error) for token in member.sync_tokens]\n"
        "            member.sync_tokens = ()\n"
        "\n"
        "    # -- time",
        "            member.sync_tokens = ()\n\n    # -- time",
        f"{_SYNC}assignments_are_stored_before_anyone_is_answered",
    ),
    bug(
        _ROUNDS,
        "parked syncs are answered twice",
        "            self._out += [self._sync_reply(member, token) for token in member.sync_tokens]\n"
        "            member.sync_tokens = ()\n",
        "            self._out += [self._sync_reply(member, token) for token in member.sync_tokens]\n",
    ),
    bug(
        _ROUNDS,
        "ids that were handed out never expire",
        "                self.roster.pending.discard(member_id)\n",
        "",
        f"{_JOIN}an_unused_id_expires_with_its_session_timeout",
    ),
    bug(
        _ROUNDS,
        "an expired id does not end the wait for it",
        '                self._say("pending_member_expired", member_id)\n'
        "                self._maybe_complete_join()\n",
        '                self._say("pending_member_expired", member_id)\n',
        f"{_JOIN}an_unused_id_expires_with_its_session_timeout",
    ),
    bug(
        _ROUNDS,
        "sessions end a little early",
        "self._now + member.session_timeout_ms",
        "self._now + member.session_timeout_ms - 100",
        f"{_SYNC}a_silent_member_expires_exactly_at_its_session_timeout",
    ),
    bug(
        _ROUNDS,
        "a parked request does not vouch for its member",
        "        if not member.is_new and (member.join_tokens or member.sync_tokens):\n",
        "        if False:\n",
        f"{_SYNC}a_parked_request_counts_as_a_heartbeat",
    ),
    bug(
        _ROUNDS,
        "a parked newcomer is waited for without end",
        "        if not member.is_new and (member.join_tokens or member.sync_tokens):\n",
        "        if member.join_tokens or member.sync_tokens:\n",
        f"{_JOIN}a_newcomer_parked_too_long_is_given_up_after_five_minutes",
    ),
    bug(
        _ROUNDS,
        "nobody ever dies",
        '        self._say("member_expired", member.member_id)\n'
        "        self._forget(member.member_id, Code.UNKNOWN_MEMBER_ID)\n"
        "        self._membership_changed()\n",
        "",
        f"{_SYNC}a_silent_member_expires_exactly_at_its_session_timeout",
    ),
    bug(
        _ROUNDS,
        "a death is no reason to rebalance",
        "        self._forget(member.member_id, Code.UNKNOWN_MEMBER_ID)\n"
        "        self._membership_changed()\n",
        "        self._forget(member.member_id, Code.UNKNOWN_MEMBER_ID)\n",
        f"{_SYNC}a_leader_that_dies_after_it_assigned_costs_one_rebalance",
    ),
    bug(
        _ROUNDS,
        "members that never sync stay",
        "        for member_id in sorted(self._unsynced & self.roster.members.keys()):\n",
        "        for member_id in ():\n",
        f"{_SYNC}members_that_never_sync_are_evicted",
    ),
    bug(
        _ROUNDS,
        "the old incarnation of a static member is not fenced",
        "            if current != member_id:\n"
        "                return Code.FENCED_INSTANCE_ID\n"
        "        return Code.NONE if",
        "        return Code.NONE if",
        f"{_STATIC}the_old_incarnation_is_fenced_everywhere",
    ),
    bug(
        _ROUNDS,
        "when a group became empty is not noted",
        "        self.state_since_ms = self._wall\n",
        "",
        f"{_UNIT}offsets.py::test_offsets_of_an_empty_group_expire_counted_from_when_it_became_empty",
    ),
    bug(
        _ROUNDS,
        "parked requests of a member that goes are not answered",
        "        self._unsynced.discard(member_id)\n        self._answer_parked(member, error)\n",
        "        self._unsynced.discard(member_id)\n",
        f"{_SYNC}leaving_ends_ones_own_parked_requests",
    ),
)

_JOINS = (
    bug(
        _ABSENT,
        "any session timeout is accepted",
        (
            "    if (\n"
            "        not limits.min_session_timeout_ms\n"
            "        <= event.session_timeout_ms\n"
            "        <= limits.max_session_timeout_ms\n"
            "    ):"
        ),
        "    if False:",
        f"{_JOIN}a_session_timeout_outside_the_brokers_bounds_is_refused",
    ),
    bug(
        _ABSENT,
        "a member without protocols is let in",
        "    if not event.protocol_type or not event.protocols:\n",
        "    if not event.protocol_type:\n",
    ),
    bug(
        _CLASSIC,
        "a full group takes one more",
        "        return member_id in self.roster or len(self.roster) < self.limits.max_size\n",
        "        return member_id in self.roster or len(self.roster) <= self.limits.max_size\n",
        f"{_JOIN}a_full_group_refuses_newcomers_in_every_state",
    ),
    bug(
        _CLASSIC,
        "a join phase takes any number",
        "            return waiting or self.roster.joined() < self.limits.max_size\n",
        "            return True\n",
        f"{_JOIN}a_group_shrunk_by_its_settings_turns_the_last_rejoining_member_away",
    ),
    bug(
        _CLASSIC,
        "who is turned away stays a member",
        "                self._forget(event.member_id, Code.GROUP_MAX_SIZE_REACHED)\n",
        "",
        f"{_JOIN}a_group_shrunk_by_its_settings_turns_the_last_rejoining_member_away",
    ),
    bug(
        _CLASSIC,
        "a member of another protocol type is let in",
        "return event.protocol_type == self.protocol_type and fits",
        "return fits",
        f"{_JOIN}protocols_nobody_else_speaks_are_refused",
    ),
    bug(
        _CLASSIC,
        "a member that shares no protocol is let in",
        "any(self.roster.is_common(p.name) for p in event.protocols)",
        "True",
        f"{_JOIN}protocols_nobody_else_speaks_are_refused",
    ),
    bug(
        _CLASSIC,
        "a static newcomer is a second member of its instance",
        "        if event.instance_id is not None and event.instance_id in self.roster.instances:\n",
        "        if False:\n",
        f"{_STATIC}a_bounced_follower_takes_its_place_back_without_a_rebalance",
    ),
    bug(
        _CLASSIC,
        "ids are handed out without bound",
        "        elif len(self.roster.pending) >= self.limits.max_pending:\n",
        "        elif False:\n",
        f"{_JOIN}ids_handed_out_and_not_used_are_capped",
    ),
    bug(
        _CLASSIC,
        "a parked newcomer is given up after its session timeout",
        "self.timers.set(Purpose.SESSION, member_id, self._now + NEW_MEMBER_JOIN_TIMEOUT_MS)",
        "self.timers.set(Purpose.SESSION, member_id, self._now + member.session_timeout_ms)",
    ),
    bug(
        _CLASSIC,
        "a newcomer does not put off the end of the initial delay",
        "        self._newcomer_since_delay = True\n",
        "",
        f"{_JOIN}a_new_group_waits_for_more_members_while_they_keep_arriving",
    ),
    bug(
        _CLASSIC,
        "the old incarnation's parked requests wait for ever",
        "        self._answer_parked(before, Code.FENCED_INSTANCE_ID)\n",
        "",
        f"{_STATIC}a_parked_join_of_the_old_incarnation_is_fenced_when_the_new_one_arrives",
    ),
    bug(
        _CLASSIC,
        "a bounce loses the assignment",
        "member_id=event.new_member_id, is_new=False)\n",
        'member_id=event.new_member_id, is_new=False, assignment=b"")\n',
        f"{_STATIC}a_bounced_follower_takes_its_place_back_without_a_rebalance",
    ),
    bug(
        _CLASSIC,
        "every bounce is a rebalance",
        "        if self.state is State.STABLE and self.roster.select_protocol() == self.protocol_name:\n",
        "        if False:\n",
        f"{_STATIC}a_bounced_follower_takes_its_place_back_without_a_rebalance",
    ),
    bug(
        _CLASSIC,
        "a bounce that changes the protocol is no rebalance",
        "        if self.state is State.STABLE and self.roster.select_protocol() == self.protocol_name:\n",
        "        if self.state is State.STABLE:\n",
        f"{_STATIC}a_bounced_member_whose_protocols_change_the_choice_starts_a_rebalance",
    ),
    bug(
        _CLASSIC,
        "a bounced member need not sync again",
        "        if old.member_id in self._unsynced:\n",
        "        if False:\n",
    ),
    bug(
        _CLASSIC,
        "a replacement that is not on disk holds",
        "            self._put(member, before)\n            self._refuse_join(event, error)\n",
        "            self._refuse_join(event, error)\n",
        f"{_STATIC}a_replacement_that_cannot_be_stored_is_undone",
    ),
    bug(
        _CLASSIC,
        "a bounced leader assigns to a group that does not listen",
        "skip_assignment=leads)\n",
        "skip_assignment=False)\n",
        f"{_STATIC}a_bounced_leader_is_told_to_skip_the_assignment",
    ),
    bug(
        _CLASSIC,
        "an older client that led assigns after a bounce",
        "token=event.token, leader=old_leader))",
        "token=event.token))",
        f"{_STATIC}a_bounced_leader_of_an_older_version_sees_its_old_id_lead",
    ),
    bug(
        _CLASSIC,
        "the last to rejoin does not end the join phase",
        "        self._update(member, event)\n        self._maybe_complete_join()\n",
        "        self._update(member, event)\n",
        f"{_JOIN}both_copies_of_a_parked_join_get_the_same_answer",
    ),
    bug(
        _CLASSIC,
        "changed metadata in the sync phase go unheard",
        "        if member.protocols == event.protocols:\n",
        "        if True:\n",
    ),
    bug(
        _CLASSIC,
        "a leader that joins again is told that nothing changed",
        "        if self.roster.leader == member.member_id or member.protocols != event.protocols:\n",
        "        if member.protocols != event.protocols:\n",
        f"{_JOIN}a_leader_that_joins_again_starts_a_rebalance",
    ),
    bug(
        _CLASSIC,
        "changed metadata of a follower go unheard",
        "        if self.roster.leader == member.member_id or member.protocols != event.protocols:\n",
        "        if self.roster.leader == member.member_id:\n",
        f"{_JOIN}a_follower_with_changed_metadata_starts_a_rebalance",
    ),
    bug(
        _CLASSIC,
        "an unchanged follower disturbs everybody",
        "        if self.roster.leader == member.member_id or member.protocols != event.protocols:\n",
        "        if True:\n",
        f"{_JOIN}an_unchanged_follower_that_joins_a_stable_group_gets_the_current_generation",
    ),
    bug(
        _CLASSIC,
        "a repeated join does not count as a sign of life",
        "        self._renew_session(member)\n"
        "        reply = self._join_reply(member, with_members=with_members)\n",
        "        reply = self._join_reply(member, with_members=with_members)\n",
    ),
    bug(
        _CLASSIC,
        "what a rejoining member offers now is not noted",
        "        self.roster.offer(member, event.protocols)\n",
        "",
        f"{_STATIC}a_bounced_member_may_bring_other_metadata_as_long_as_the_protocol_stays",
    ),
    bug(
        _CLASSIC,
        "a rejoining member keeps its old timeouts",
        "        member.rebalance_timeout_ms = event.rebalance_timeout_ms\n",
        "",
    ),
    bug(
        _CLASSIC,
        "the oldest of many copies of a join is never answered",
        "            self._out.append(fx.JoinReply(token, Code.REBALANCE_IN_PROGRESS, member.member_id))\n",
        "            pass\n",
        f"{_JOIN}of_many_copies_of_a_parked_join_the_oldest_is_told_to_try_again",
    ),
)

_OTHERS = (
    bug(
        _CLASSIC,
        "the oldest of many copies of a sync is never answered",
        "            self._out.append(fx.SyncReply(token, Code.REBALANCE_IN_PROGRESS))\n",
        "            pass\n",
        f"{_SYNC}of_many_copies_of_a_parked_sync_the_oldest_is_told_to_try_again",
    ),
    bug(
        _CLASSIC,
        "a sync of another generation is taken",
        "        if event.generation != self.generation:\n"
        "            return Code.ILLEGAL_GENERATION\n"
        "        other_type",
        "        other_type",
        f"{_SYNC}a_sync_of_another_generation_is_refused",
    ),
    bug(
        _CLASSIC,
        "a sync under another protocol is taken",
        "        if other_type or (named and",
        "        if False and (named and",
        f"{_SYNC}a_sync_under_another_protocol_is_refused",
    ),
    bug(
        _CLASSIC,
        "any member's assignment is taken",
        "        if event.member_id == self.roster.leader:\n            given",
        "        if event.assignments:\n            given",
    ),
    bug(
        _CLASSIC,
        "a follower that syncs late is evicted anyway",
        "        self._synced(event.member_id)\n        self._renew_session(",
        "        self._renew_session(",
        f"{_SYNC}the_sync_timer_stops_when_everyone_has_synced",
    ),
    bug(
        _CLASSIC,
        "a sync during the join phase is answered as if all were well",
        "            error = Code.REBALANCE_IN_PROGRESS\n"
        "        self._out.append(fx.SyncReply(event.token, error))\n",
        "            pass\n        self._out.append(fx.SyncReply(event.token, error))\n",
        f"{_SYNC}a_sync_during_the_join_phase_is_told_to_rejoin",
    ),
    bug(
        _CLASSIC,
        "heartbeats of any generation are welcome",
        "        if error is Code.NONE and event.generation != self.generation:\n"
        "            error = Code.ILLEGAL_GENERATION\n"
        "        if error is Code.NONE:\n"
        "            self._heard_from(event.member_id)\n"
        "            error = calm\n",
        "        if error is Code.NONE:\n"
        "            self._heard_from(event.member_id)\n"
        "            error = calm\n",
        f"{_SYNC}heartbeats_of_another_generation_are_refused",
    ),
    bug(
        _CLASSIC,
        "heartbeats keep nobody alive",
        "            self._heard_from(event.member_id)\n            error = calm\n",
        "            error = calm\n",
        f"{_SYNC}the_sync_timer_stops_when_everyone_has_synced",
    ),
    bug(
        _CLASSIC,
        "heartbeats do not tell of a rebalance",
        "        self._heartbeat(event, Code.REBALANCE_IN_PROGRESS)\n",
        "        self._heartbeat(event)\n",
        f"{_SYNC}heartbeats_say_whether_to_go_on",
    ),
    bug(
        _CLASSIC,
        "a heartbeat cuts a newcomer's wait short",
        "        if not member.is_new:  # a newcomer's long timeout is not for its session yet\n",
        "        if True:\n",
    ),
    bug(
        _CLASSIC,
        "a leave is no reason to rebalance",
        "        if len(self.roster) < before:\n            self._membership_changed()\n        else:\n",
        "        if True:\n",
        f"{_SYNC}the_last_member_leaves_an_empty_group_with_the_next_generation",
    ),
    bug(
        _CLASSIC,
        "an id that was given back is still waited for",
        "            self.roster.pending.remove(member_id)\n",
        "",
        f"{_JOIN}an_unused_id_can_be_given_back",
    ),
    bug(
        _CLASSIC,
        "the last id given back does not end the wait for it",
        "            self._maybe_complete_join()  # an unused id that was given back may "
        "be the last one missing\n",
        "            pass\n",
        f"{_JOIN}an_unused_id_can_be_given_back",
    ),
    bug(
        _CLASSIC,
        "an old incarnation throws the new one out",
        "            if member_id and member_id != current:\n"
        "                return Code.FENCED_INSTANCE_ID\n",
        "",
        f"{_STATIC}the_old_incarnation_is_fenced_everywhere",
    ),
    bug(
        _CLASSIC,
        "a group with members is deleted",
        "(C, DeleteGroup): G._refuse_delete,   (S, DeleteGroup): G._refuse_delete,",
        "(C, DeleteGroup): G._refuse_delete,   (S, DeleteGroup): G._delete,",
        f"{_MOVES}a_group_with_members_is_not_deleted",
    ),
)

MUTANTS = (*_ROSTER, *_PHASES, *_JOINS, *_OTHERS)

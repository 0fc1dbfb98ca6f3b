"""Planted bugs of the assigner service; the simulator sees those that need time and rivals by itself."""

from __future__ import annotations

from tests.mutants import Mutant

_HOME = "faust_assigner/service"
_HANDOFF, _LEASES, _MIRROR = f"{_HOME}/handoff.py", f"{_HOME}/leases.py", f"{_HOME}/mirror.py"
_MOVES, _ELECTION = f"{_HOME}/leading/moves.py", f"{_HOME}/leading/election.py"
_SLOTS = f"{_HOME}/leading/slots.py"
_ADVANCE, _BUNDLES = f"{_HOME}/leading/advance.py", f"{_HOME}/leading/bundles.py"
_REBALANCER, _TARGETS = f"{_HOME}/leading/rebalancer.py", f"{_HOME}/leading/targets.py"
_REWRITE = f"{_HOME}/store/rewrite.py"
_ACKS, _RELAY = f"{_HOME}/serving/acks.py", f"{_HOME}/serving/relay.py"
_REGISTRY, _SESSIONS = f"{_HOME}/serving/registry.py", f"{_HOME}/serving/sessions.py"

_SIMULATOR = "tests/property/machines/test_service_sim.py::test_random_lives_keep_every_promise"
_UNIT = "tests/unit/service/test_"
_HOLES = "tests/unit/service/holes/test_holes_"
_LEADER, _CONSUMERS = f"{_HOLES}leader.py::", f"{_HOLES}consumers.py::"
_PLAN, _LEASES_ = f"{_HOLES}plan.py::", f"{_HOLES}leases.py::"
_RESTORED = f"{_UNIT}restored.py::test_epochs_rise_over_a_restored_snapshot"
_TABLE, _RELAYED = f"{_UNIT}handoff.py::", f"{_UNIT}relay.py::"


def bug(file: str, story: str, old: str, new: str, *units: str) -> Mutant:
    """A bug that the simulator sees, and these unit tests."""
    return Mutant(story=story, file=file, old=old, new=new, red=(_SIMULATOR, *units))


def seen(file: str, story: str, old: str, new: str, *units: str) -> Mutant:
    """A bug that these unit tests see."""
    return Mutant(story=story, file=file, old=old, new=new, red=units)


_HANDOFFS = (
    bug(
        _HANDOFF,
        "a hand-off is complete without anybody having been warm",
        "    (_S.WARMING, _H.LATE): (_S.GONE, _E.COOL),\n",
        "    (_S.WARMING, _H.LATE): (_S.COMPLETE, _E.GIVE),\n",
        f"{_TABLE}test_phases_only_go_forward",
    ),
    bug(
        _HANDOFF,
        "a hand-off that never gets warm never ends",
        "    (_S.WARMING, _H.LATE): (_S.GONE, _E.COOL),\n",
        "",
        f"{_TABLE}test_every_state_ends_by_itself_or_by_its_deadline",
    ),
    bug(
        _HANDOFF,
        "a strict hand-off does not wait for the old owner",
        "    (_S.RELEASING, _H.LET_GO): (_S.RELEASED, _E.NOTHING),\n",
        "    (_S.RELEASING, _H.LOOK): (_S.COMPLETE, _E.GIVE),\n",
        f"{_TABLE}test_a_strict_owner_has_released_or_is_gone_before_the_new_one_owns",
    ),
    bug(
        _HANDOFF,
        "a strict old owner that never releases keeps the hand-off open for ever",
        "    (_S.RELEASING, _H.LATE): (_S.EXPELLED, _E.EXPEL),\n",
        "",
        f"{_TABLE}test_every_state_ends_by_itself_or_by_its_deadline",
    ),
    bug(
        _HANDOFF,
        "an old owner that never releases keeps a complete hand-off open for ever",
        "    (_S.COMPLETE, _H.LATE): (_S.GONE, _E.NOTHING),  # the old owner is fenced by its epoch\n",
        "",
        f"{_TABLE}test_every_state_ends_by_itself_or_by_its_deadline",
    ),
    bug(
        _HANDOFF,
        "who gave up is given the partition",
        "    (_S.FAILED, _H.LOOK): (_S.GONE, _E.COOL),\n",
        "    (_S.FAILED, _H.LOOK): (_S.GONE, _E.GIVE),\n",
        f"{_TABLE}test_nobody_owns_who_was_not_warm_unless_the_old_owner_is_gone",
    ),
    bug(
        _HANDOFF,
        "the final offset is lost",
        "released=True, offset=offset)",
        "released=True)",
        f"{_CONSUMERS}test_10_in_strict_mode_the_new_owner_starts_only_when_the_old_one_has_drained",
    ),
)

_LEADING = (
    bug(
        _ELECTION,
        "a leader writes without comparing its key",
        "self._store.txn((self._guard, *compares), writes)",
        "self._store.txn(compares, writes)",
        f"{_LEASES_}test_2_every_write_of_a_leader_compares_the_leaders_key",
    ),
    bug(
        _ELECTION,
        "a leader writes until the store says no",
        "        if not self.is_held:\n",
        "        if False:\n",
        f"{_LEASES_}test_2_a_leader_that_is_not_sure_of_its_lease_does_not_even_try",
    ),
    bug(
        _ELECTION,
        "whoever runs for leader leads",
        "self._store.txn([absent(self._keys.leader)], [put])",
        "self._store.txn([], [put])",
    ),
    bug(
        _LEASES,
        "a lease is trusted beyond its time to live",
        "FENCE_AT = 2 / 3\n",
        "FENCE_AT = 4 / 3\n",
        f"{_LEASES_}test_1_a_leader_fences_itself_at_two_thirds_of_the_lease_from_when_it_asked",
    ),
    seen(
        _LEASES,
        "a keepalive that was answered is a lease that lives",
        "        if ttl <= 0:\n",
        "        if False:\n",
        f"{_LEASES_}test_1_a_keepalive_with_a_time_to_live_of_0_ends_the_leadership",
    ),
    bug(
        _LEASES,
        "a lease's time is counted from the answer",
        "        self._sent = sent\n        return True",
        "        self._sent = self._clock.monotonic()\n        return True",
        f"{_LEASES_}test_1_a_leader_fences_itself_at_two_thirds_of_the_lease_from_when_it_asked",
    ),
    seen(
        _BUNDLES,
        "a transaction takes as much as there is",
        "            yield chunk\n            chunk, sizes",
        "            pass\n            chunk, sizes",
        f"{_LEADER}test_4_what_is_more_than_a_transaction_takes_is_written_in_several",
    ),
    bug(
        _MOVES,
        "an owner that came back loses what is its own",
        "    return [] if entry is None else [still_gone(view, entry.value.owner)]\n",
        "    return []\n",
    ),
    seen(
        _ADVANCE,
        "an old owner that came back loses what it hands over",
        "            compares.append(still_gone(view, handoff.old_owner))\n",
        "            pass\n",
        f"{_LEADER}test_7_an_owner_that_comes_back_in_time_keeps_what_it_hands_over",
    ),
    bug(
        _MOVES,
        "partitions are moved without a hand-off",
        "    return _living_owner(view, at) is None and not _is_fenced(view, at)\n",
        "    return True\n",
        f"{_LEADER}test_7_a_handoff_ends_by_its_deadline_and_another_target_is_chosen",
    ),
    bug(
        _ADVANCE,
        "a decision about one hand-off is carried out on the next",
        "    compares = [view.same(key)]\n    writes: list",
        "    compares: list[Compare] = []\n    writes: list",
        f"{_LEADER}test_3_a_write_for_a_handoff_that_was_deleted_and_created_again_does_not_land",
    ),
    seen(
        _SLOTS,
        "one consumer warms everything at once",
        "if room <= 0 or free <= 0 or (len(mine) > free and held[new]):",
        "if room <= 0:",
        f"{_LEADER}test_7_no_more_handoffs_at_once_than_are_allowed[100-2-4]",
    ),
    seen(
        _SLOTS,
        "the group hands over everything at once",
        "if room <= 0 or free",
        "if free",
        f"{_LEADER}test_7_no_more_handoffs_at_once_than_are_allowed[4-100-3]",
    ),
    seen(
        _TARGETS,
        "who could not warm a partition is asked again at once",
        "    _avoid(owner, barred, ",
        "    _avoid(owner, set(), ",
        f"{_LEADER}test_7_a_handoff_ends_by_its_deadline_and_another_target_is_chosen",
    ),
    seen(
        _TARGETS,
        "topics of equal counts travel together",
        "co_partitioned=sorted(",
        "co_partitioned=None and sorted(",
        f"{_PLAN}test_11_two_hundred_topics_of_one_partition_are_spread[choose-True]",
    ),
)

_TOGETHER = (
    seen(
        _ADVANCE,
        "of a pair one is handed over before the other is warm",
        "        if not ready and handoff.failed is None:\n",
        "        if False:\n",
        f"{_PLAN}test_11_partitions_that_travel_together_are_handed_over_together_or_not_at_all[False]",
    ),
    seen(
        _ADVANCE,
        "of a pair one is handed over though the other cannot be",
        "        if any(other.at != handoff.at and _fails(other, late) for other in crew):\n",
        "        if False:\n",
        f"{_PLAN}test_11_partitions_that_travel_together_are_handed_over_together_or_not_at_all[True]",
    ),
)

_SERVING = (
    bug(
        _REWRITE,
        "an answer is written whatever became of the hand-off",
        "store.txn(compares, write if",
        "store.txn([], write if",
        f"{_CONSUMERS}test_8_an_answer_does_not_bring_back_a_handoff_that_was_deleted",
    ),
    bug(
        _ACKS,
        "anybody may answer for anybody",
        "            if caller is not None:\n                name, incarnation",
        "            if False:\n                name, incarnation",
        f"{_CONSUMERS}test_8_an_answer_counts_only_from_the_right_one_for_this_handoff_in_its_phase",
    ),
    bug(
        _ACKS,
        "an answer to an older hand-off is taken for this one",
        "            if handoff_id is not None and handoff_id != kv.create_revision:\n",
        "            if False:\n",
        f"{_CONSUMERS}test_8_an_answer_counts_only_from_the_right_one_for_this_handoff_in_its_phase",
    ),
    seen(
        _RELAY,
        "a reconnected owner goes on with what it has let go",
        " == mine and at not in let_go",
        " == mine",
        f"{_RELAYED}test_a_reconnected_owner_does_not_go_on_with_what_it_may_have_let_go",
    ),
    seen(
        _RELAY,
        "an owner whose strict hand-off was given up is not told to go on",
        "        assigned\n        and view.is_registered",
        "        False\n        and view.is_registered",
        f"{_RELAYED}test_an_owner_that_was_asked_to_release_in_vain_is_told_to_go_on",
    ),
    seen(
        _RELAY,
        "nobody is told of a hand-off that was given up",
        "    yield handoff.new_owner, AbortWarm(handoff.at, entry.kv.create_revision)\n",
        "    yield from ()\n",
        f"{_RELAYED}test_a_handoff_that_was_given_up_tells_the_new_owner_to_forget_it",
    ),
    seen(
        _REGISTRY,
        "a late clean-up takes the reconnected stream away",
        "        if self._streams.get(stream.consumer_name) is not stream:\n",
        "        if False:\n",
        f"{_CONSUMERS}test_9_the_clean_up_of_an_old_stream_leaves_the_reconnected_one_alone",
    ),
    # The simulator sees this one and "from now" below too, with more seeds than a test plays.
    seen(
        _REGISTRY,
        "what does not fit a stream is lost",
        "            self.resync()\n            self._overflowed()",
        "            self._queue.clear()\n            self._overflowed()",
        f"{_CONSUMERS}test_9_a_stream_that_overflows_gets_a_fresh_snapshot",
    ),
    seen(
        _SESSIONS,
        "a stream begins before the registration is seen",
        "        await self._mirror.past(revision, known)\n        stream",
        "        stream",
        f"{_UNIT}sessions.py::test_a_stream_begins_with_what_was_so_when_the_consumer_registered",
    ),
    seen(
        _SESSIONS,
        "a registration is kept alive for an older stream",
        "        self._end(stream, why)\n        self._drop(stream)\n",
        "        self._end(stream, why)\n",
        f"{_UNIT}sessions.py::test_only_the_last_stream_of_a_name_is_kept_alive",
    ),
    seen(
        _MIRROR,
        "a watch goes on from now",
        "self._store.watch(self._prefix, self.revision + 1)",
        "self._store.watch(self._prefix, 1 << 60)",
        f"{_LEADER}test_5_a_watch_goes_on_where_the_list_ended",
    ),
    seen(
        _MIRROR,
        "compaction ends a watch for good",
        "                while not await self._relist():\n",
        "                while False:\n",
        f"{_LEADER}test_5_a_watch_whose_history_is_compacted_lists_again_and_tells_the_difference",
    ),
    seen(
        _MIRROR,
        "a restored store that has written as much again is taken for what it was",
        "return listing.revision < asked or any(",
        "return listing.revision < asked or False and any(",
        f"{_RESTORED}[True-0]",
        f"{_RESTORED}[True-50]",
    ),
    seen(
        _MIRROR,
        "epochs of a restored store begin where sinks refuse them",
        "                    await self._raise_epochs(self.view.base + self.revision)\n",
        "",
        f"{_RESTORED}[True--1000]",
        f"{_RESTORED}[True-1]",
    ),
    seen(
        _MIRROR,
        "who registers with an instance that has not noticed a restore is taken for replaced",
        "if revision <= known and not",
        "if False and not",
        f"{_UNIT}restored.py::test_who_registers_before_that_is_noticed_is_not_sent_away",
    ),
    seen(
        _RELAY,
        "nobody is told that epochs were raised",
        '    if any(change.kind == "bases" for change in changes):\n',
        "    if False:\n",
        f"{_UNIT}restored.py::test_epochs_may_be_raised_by_hand",
    ),
    seen(
        f"{_HOME}/keys.py",
        "what nobody can read is in everybody's way",
        "    except UNREADABLE:\n        return None\n",
        "    except EOFError:\n        return None\n",
        f"{_UNIT}unreadable.py::test_a_consumer_registers_over_what_nobody_can_read",
        f"{_UNIT}unreadable.py::test_an_answer_to_what_nobody_can_read_is_refused",
        f"{_UNIT}unreadable.py::test_a_topics_count_that_nobody_can_read_is_asked_for_anew",
    ),
)

MUTANTS = (*_HANDOFFS, *_LEADING, *_TOGETHER, *_SERVING)

"""Planted bugs of warm-ups and of late starters, in the planner and around it."""

from __future__ import annotations

from tests.mutants import Mutant

_WARMUP, _STICKY, _PREVIOUS = (
    f"faust_assigner/{name}.py" for name in ("warmup", "sticky", "previous")
)
_PLANNER, _NUMBERS = "faust_assigner/planner.py", "faust_assigner/actives/numbers.py"
_FOLLOW_UP, _POSITIONS = (
    f"faust_assigner/app/rebalance/{name}.py" for name in ("follow_up", "positions")
)
_PROPERTY = "tests/property/warm/test_warmups.py::test_"
_BOUND = f"{_PROPERTY}the_target_is_reached_in_as_many_rounds_as_are_promised"
_JOIN = f"{_PROPERTY}a_joins_tasks_come_when_they_are_warm"
_GIVEN_UP = f"{_PROPERTY}of_one_that_never_catches_up_another_task_is_asked_for"
_EXCHANGED = f"{_PROPERTY}what_was_given_up_is_exchanged_for_another_of_its_owner"
_SHORT = f"{_PROPERTY}who_is_near_takes_over_and_who_has_nothing_does_not"
_WIRE = "tests/unit/wire/test_positions.py::test_"
_ASKS = "tests/unit/app/rebalance/test_follow_up.py::test_"
_SAID = "tests/unit/app/rebalance/test_positions.py::test_"
_RULE = "tests/unit/app/rebalance/test_two_phase.py::test_"
_LATE = "tests/property/warm/test_late_starters.py::test_"

_NO_RECORD = (
    "tests/integration/app/test_warmup_without_records.py::"
    "test_a_copy_of_a_log_without_a_record_is_promoted_once_it_has_been_read[compacted]"
)

MUTANTS = (
    Mutant(
        story="that a changelog without a record has been read is found out and not said",
        file=_FOLLOW_UP,
        old="    app.assignor.read_to = read\n",
        new="",
        red=(_NO_RECORD,),
    ),
    Mutant(
        story="that a changelog without a record has been read is forgotten on the way to the leader",
        file=_POSITIONS,
        old="                here[tp.partition] = max(here.get(tp.partition, -1), position - 1)\n",
        new="                pass\n",
        red=(_NO_RECORD,),
    ),
    Mutant(
        story="a worker that follows many copies never sees the end of one without a record",
        file=_FOLLOW_UP,
        old="tp not in waiting:",
        new="not waiting:",
        red=(f"{_ASKS}records_of_others_that_wait_hold_up_no_end",),
    ),
    Mutant(
        story="a round that moved what was done counts as one in vain",
        file=_FOLLOW_UP,
        old="asked_for if asked_for <= awaited.tps else",
        new="asked_for if awaited.tps else",
        red=(f"{_ASKS}a_round_that_moved_what_was_done_makes_the_next_one_no_later",),
    ),
    Mutant(
        story="a deadline begins anew where a look falls between two rounds",
        file=_FOLLOW_UP,
        old="        if awaited.follows:\n            return\n",
        new="",
        red=(f"{_ASKS}the_first_of_two_rounds_changes_nothing_of_what_is_waited_for",),
    ),
    Mutant(
        story="what has caught up is given up at the first look of an assignment",
        file=_FOLLOW_UP,
        old="        if is_first:\n            return",
        new="        if False:\n            return",
        red=(f"{_ASKS}who_has_caught_up_is_not_late_whatever_came_between",),
    ),
    Mutant(
        story="rounds are asked for in vain for ever where the leader does not believe",
        file=_FOLLOW_UP,
        old="awaited.tps - (done - self._in_vain)",
        new="awaited.tps - done",
        red=(f"{_ASKS}what_the_leader_never_believes_is_given_up",),
    ),
    Mutant(
        story="a round that could not be asked for counts as asked for",
        file=_FOLLOW_UP,
        old="            is_asked = await self._ask(",
        new="            self._asked_for = done\n            is_asked = await self._ask(",
        red=(f"{_ASKS}a_round_that_could_not_be_asked_for_is_asked_for_at_the_next_look",),
    ),
    Mutant(
        story="a round is asked for in vain because a task's small changelog has caught up",
        file=_FOLLOW_UP,
        old="done = awaited.whole(frozenset(read))",
        new="done = frozenset(read)",
        red=(f"{_ASKS}a_part_of_a_tasks_state_is_not_what_is_waited_for",),
    ),
    Mutant(
        story="work moves before its state",
        file=_WARMUP,
        old=(
            "        near: Bools = (lag <= self.policy.acceptable_recovery_lag) & (\n"
            "            from_nothing <= self.policy.acceptable_from_nothing\n"
            "        )"
        ),
        new="        near: Bools = (lag >= 0) & (from_nothing <= self.policy.acceptable_from_nothing)",
        red=(_SHORT,),
    ),
    Mutant(
        story="exactly as far behind as is acceptable is too far",
        file=_WARMUP,
        old="        near: Bools = (lag <= self.policy.acceptable_recovery_lag) & (",
        new="        near: Bools = (lag < self.policy.acceptable_recovery_lag) & (",
        red=(_SHORT,),
    ),
    Mutant(
        story="who holds nothing of a short changelog is near enough",
        file=_WARMUP,
        old=(
            "        near: Bools = (lag <= self.policy.acceptable_recovery_lag) & (\n"
            "            from_nothing <= self.policy.acceptable_from_nothing\n"
            "        )"
        ),
        new="        near: Bools = (lag <= self.policy.acceptable_recovery_lag) & (from_nothing >= 0)",
        red=(_SHORT,),
    ),
    Mutant(
        story="a member is judged by the last of several changelogs that it lacks",
        file=_WARMUP,
        old="            np.maximum(from_nothing, end, out=from_nothing, where=at == 0)\n",
        new="            from_nothing = np.where(at == 0, end, 0)\n",
        red=(f"{_PROPERTY}one_log_of_several_that_a_member_lacks_makes_it_cold",),
    ),
    Mutant(
        story="an owner that restores itself is taken for the end of its changelog",
        file="faust_assigner/app/rebalance/positions.py",
        old="known(recovery.active_highwaters.get(TP(topic, p)))",
        new="-1",
        red=(f"{_SAID}an_owner_that_is_being_restored_tells_where_its_log_ends",),
    ),
    Mutant(
        story="files of a topic that was created anew are taken for warm",
        file=_WARMUP,
        old="            at[_is_beyond(at, end)] = 0\n",
        new="",
        red=(f"{_PROPERTY}a_claim_beyond_the_end_is_no_warmth_and_is_counted",),
    ),
    Mutant(
        story="a standby that joined a moment after its owner is disbelieved",
        file=_WARMUP,
        old="position > end + _SINCE_TOLD\n",
        new="position > end\n",
        red=(f"{_PROPERTY}a_copy_may_be_a_little_further_than_its_owner_said",),
    ),
    Mutant(
        story="a member that tells nothing is waited for, for good",
        file=_WARMUP,
        old="        measured = self.tells[member] & self.tells[owner]\n",
        new="        measured = self.tells[owner]\n",
        red=(f"{_PROPERTY}what_cannot_be_measured_is_not_waited_for[target]",),
    ),
    Mutant(
        story="the records of several endless changelogs add up to less than none",
        file=_WARMUP,
        old="np.clip(found, 0, _FURTHEST)",
        new="np.clip(found, 0, None)",
        red=(f"{_PROPERTY}ends_however_far_are_waited_for",),
    ),
    Mutant(
        story="one member warms up everything at a time",
        file=_WARMUP,
        old="< self.policy.max_per_member]",
        new="< self.policy.max_per_group]",
        red=(_JOIN,),
    ),
    Mutant(
        story="the group warms up everything at a time",
        file=_WARMUP,
        old=(
            "        chosen = order[_rank(target[off][order]) < self.policy.max_per_member][\n"
            "            : self.policy.max_per_group\n"
            "        ]"
        ),
        new="        chosen = order[_rank(target[off][order]) < self.policy.max_per_member]",
        red=(f"{_BOUND}[3-churn-6]",),
    ),
    Mutant(
        story="long tables come before short ones",
        file=_WARMUP,
        old="        order = np.lexsort((off, self._of_targets(self.lag, off, target), ~begun))\n",
        new="        order = np.lexsort((off, ~begun))\n",
        red=(f"{_PROPERTY}of_two_on_one_member_the_shorter_comes_first",),
    ),
    Mutant(
        story="what is begun is dropped for what is shorter",
        file=_STICKY,
        old="    if promises and (promised := previous.awaited != NOBODY).any():\n",
        new="    if (promised := previous.awaited != previous.awaited).any():\n",
        red=(f"{_PROPERTY}what_was_promised_is_asked_for_again",),
    ),
    Mutant(
        story="a long one is dropped for a short one each time",
        file=_WARMUP,
        old="        order = np.lexsort((off, self._of_targets(self.lag, off, target), ~begun))\n",
        new="        order = np.lexsort((off, self._of_targets(self.lag, off, target)))\n",
        red=(f"{_PROPERTY}the_begun_keep_their_place_beside_the_short",),
    ),
    Mutant(
        story="a task moves to a copy that is far behind, though another has caught up",
        file=_NUMBERS,
        old="        first[may] = caught_up(number[may], member[may])\n",
        new="",
        red=(f"{_PROPERTY}of_copies_those_that_have_caught_up_are_moved_onto",),
    ),
    Mutant(
        story="one that never catches up is waited for, for good",
        file=_WARMUP,
        old="        overdue = self._overdue\n",
        new="        overdue: set[tuple[int, int]] = set()\n",
        red=(_EXCHANGED,),
    ),
    Mutant(
        story="what was given up is still awaited",
        file=_WARMUP,
        old="            waits[task] &= target[task] != m\n",
        new="            pass\n",
        red=(_GIVEN_UP,),
    ),
    Mutant(
        story="a task is exchanged for one that was given up before",
        file=_WARMUP,
        old="            mine = mine[[(t, m) not in overdue for t in mine.tolist()]]\n",
        new="",
        red=(_EXCHANGED,),
    ),
    Mutant(
        story="this round forgets what waits",
        file="faust_assigner/promotion.py",
        old="        now[waiting] = previous.owner[waiting]\n",
        new="        pass\n",
        red=(_JOIN, f"{_BOUND}[3-join-6]"),
    ),
    Mutant(
        story="after a death, replicas warm up for a target that the next round does not have",
        file=_PLANNER,
        old="    if off.any() if weighed is not None else (promoted & off).any():\n",
        new="    if False:\n",
        red=(f"{_BOUND}[3-die-6]",),
    ),
    Mutant(
        story="a warm-up takes the place of a standby",
        file=_PLANNER,
        old="np.where(far, owner, target), replicas)\n",
        new="target, replicas)\n",
        red=(_JOIN,),
    ),
    Mutant(
        story="a spare is dropped for a replica on its way",
        file=_PREVIOUS,
        old="        copy_was_standby=was_standby & (awaited[task] != member),\n",
        new="        copy_was_standby=was_standby,\n",
        red=(f"{_PROPERTY}standbys_stay_while_warm_ups_are_under_way",),
    ),
    Mutant(
        story="of two that may have the odd task, the one with more copies gets it, not the promised one",
        file="faust_assigner/actives/counts.py",
        old="        lucky = np.lexsort((-warm[0], lands, at_home, stays))[: extra[0]]\n",
        new="        lucky = np.lexsort((-warm[0], at_home, stays))[: extra[0]]\n",
        red=(f"{_PROPERTY}all_that_was_promised_comes_though_counts_could_be_others",),
    ),
    Mutant(
        story="offsets that fall from one partition to the next are read wrong",
        file="faust_assigner/wire/positions.py",
        old="offset += (value >> 1) ^ -(value & 1)\n",
        new="offset += value >> 1\n",
        red=(f"{_WIRE}random_positions_come_back",),
    ),
    Mutant(
        story="a member with nothing is taken for one that cannot tell",
        file="faust_assigner/wire/join.py",
        old="    if data.positions is not None:\n",
        new="    if data.positions:\n",
        red=(
            f"{_WIRE}they_travel_in_a_join_and_older_members_say_none",
            "tests/unit/app/rebalance/test_warming.py::test_a_joins_partitions_come_when_their_state_is_there",
        ),
    ),
    Mutant(
        story="without warm-ups a round is asked for while standbys are behind",
        file=_FOLLOW_UP,
        old=(
            "            done == awaited.tps\n"
            "            or bool(late)\n"
            "            or (self.deadline_s is not None and bool(done) and waited >= PATIENCE * cool_down_s)"
        ),
        new="            done == awaited.tps or bool(late) or (bool(done) and waited >= PATIENCE * cool_down_s)",
        red=(f"{_ASKS}without_warm_ups_one_waits_for_all",),
    ),
    Mutant(
        story="each round gives a slow one all the time again",
        file=_FOLLOW_UP,
        old="{tp: self._first.get(tp, now) for tp in awaited.tps}",
        new="dict.fromkeys(awaited.tps, now)",
        red=(f"{_ASKS}a_deadline_runs_over_rounds",),
    ),
    Mutant(
        story="a round that changes nothing is asked for again and again",
        file=_FOLLOW_UP,
        old="min(2 * self._slower, MOST_PATIENCE) if self._in_vain else 1\n",
        new="1\n",
        red=(f"{_ASKS}a_round_that_changed_nothing_makes_the_next_one_later",),
    ),
    Mutant(
        story="two members whose rounds change nothing ask in turn, for ever",
        file=_FOLLOW_UP,
        old="        if asked_for or not awaited.tps <= self._seen.tps:\n",
        new="        if True:\n",
        red=(
            "tests/unit/app/rebalance/test_follow_up_in_turn.py"
            "::test_two_who_ask_in_turn_wait_longer_all_the_same",
        ),
    ),
    Mutant(
        story="under exactly_once a changelog seems to end at the last commit",
        file=_POSITIONS,
        old="        for tp, (_, offset) in tuple(app.tables._pending_persisted_offsets.items()):\n",
        new="        for tp, (_, offset) in ():\n",
        red=(f"{_SAID}what_is_written_and_not_yet_committed_counts",),
    ),
    Mutant(
        story="old files are taken for state of this group",
        file=_POSITIONS,
        old=(
            "        if here := {\n"
            "            p: offset + 1 for p, offset in here.items() if offset >= 0 and p in held[topic]\n"
            "        }:"
        ),
        new="        if here := {p: offset + 1 for p, offset in here.items() if offset >= 0}:",
        red=(f"{_SAID}what_this_member_does_not_hold_is_not_told",),
    ),
    Mutant(
        story="work waits, and nobody asks for the round that ends it",
        file="faust_assigner/app/rebalance/warming.py",
        old=" and read_or_default(app, table.FOLLOW_UP_S) != 0\n",
        new="\n",
        red=("tests/unit/app/rebalance/test_warming.py::test_without_warm_ups_all_move_at_once",),
    ),
    Mutant(
        story="who asks for no round is waited for",
        file="faust_assigner/app/rebalance/member.py",
        old="        if takes_part(app)",
        new="        if True",
        red=(
            "tests/unit/app/rebalance/test_warming.py::test_a_worker_that_asks_for_no_round_is_not_waited_for",
        ),
    ),
    Mutant(
        story="in eager rounds newcomers stand idle for half a minute beside tables of 100 rows",
        file="faust_assigner/app/rebalance/warming.py",
        old="SHORT if is_cooperative else lag",
        new="SHORT",
        red=(
            "tests/unit/app/rebalance/test_warming.py::"
            "test_newcomers_wait_for_short_tables_where_the_next_round_is_near[said0-100-10000]",
        ),
    ),
    Mutant(
        story="the leader takes its own word for all members'",
        file="faust_assigner/app/rebalance/leader.py",
        old="view.warmups(all(j.data.cooperative for j in said))",
        new="view.warmups(any(j.data.cooperative for j in said))",
        red=(
            "tests/unit/app/rebalance/test_warming.py::"
            "test_a_round_is_cooperative_where_all_offer_it[False-False]",
        ),
    ),
    Mutant(
        story="what is warm waits as long where rounds stop nobody",
        file="faust_assigner/app/membership/coordinator.py",
        old="        member.assignor.stops_nobody = protocol == COOPERATIVE\n",
        new="",
        red=(
            "tests/integration/app/membership/test_coordinator.py::"
            "test_a_member_that_offers_only_faust_makes_the_round_eager_for_the_next_time",
        ),
    ),
    Mutant(
        story="a copy of a log without a record in it never counts as caught up",
        file=_POSITIONS,
        old="                here[tp.partition] = max(here.get(tp.partition, -1), position - 1)\n",
        new="                pass\n",
        red=(f"{_SAID}a_copy_has_come_as_far_as_it_was_when_a_round_was_asked_for",),
    ),
    Mutant(
        story="what others owned before a stop is forgotten when a worker starts late",
        file="faust_assigner/app/rebalance/member.py",
        old="    before = former()\n",
        new="    before = former() if memory.answer is None else Former()\n",
        red=(
            "tests/unit/app/rebalance/test_late_starters.py::test_who_starts_late_finds_its_partitions_again",
        ),
    ),
    Mutant(
        story="others get warm than those whom the next round moves tasks to",
        file="faust_assigner/app/rebalance/next_round.py",
        old="        actives=found.actives(member.member_id),",
        new=("        actives=found.actives(member.member_id),\n        former_actives={},"),
        red=(
            "tests/unit/app/rebalance/test_next_round.py::"
            "test_what_members_owned_before_a_stop_counts_in_the_next_round_too",
        ),
    ),
    Mutant(
        story="the second round chooses another copy than that which the first one began",
        file="faust_assigner/app/rebalance/leader.py",
        old="    if inputs.warmups is not None:\n        # Told",
        new="    if inputs.warmups is not None and not follows:\n        # Told",
        red=(f"{_RULE}a_warm_up_that_the_first_round_began_goes_on_in_the_second[names0]",),
    ),
    Mutant(
        story="late starters get any tasks that are warm",
        file=_NUMBERS,
        old="    if first.any() or (home is not None and (home != NOBODY).any()):\n",
        new="    if first.any():\n",
        red=(
            f"{_LATE}late_starters_are_met_as_the_oracle_would[0-30]",
            "tests/property/warm/test_homing.py::test_larger_cases_are_as_good_as_the_oracles",
        ),
    ),
    Mutant(
        story="one that was given something since is believed about the dead",
        file=_PREVIOUS,
        old="np.where((dates >= generations)[was], was, NOBODY)\n",
        new="was\n",
        red=(f"{_LATE}who_was_given_something_since_says_nothing_of_the_dead",),
    ),
    Mutant(
        story="a copy has caught up with an end of before the last assignment",
        file=_FOLLOW_UP,
        old=("            None,\n            now,"),
        new=("            self._ends,\n            now,"),
        red=(f"{_ASKS}where_a_log_ended_for_the_last_assignment_is_not_where_it_ends",),
    ),
    Mutant(
        story="what was given up before is asked for again once something else is",
        file=_FOLLOW_UP,
        old="self.app.assignor.overdue |= late",
        new="self.app.assignor.overdue = late",
        red=(f"{_ASKS}one_that_takes_too_long_is_given_up",),
    ),
    Mutant(
        story="newcomers take over short tables though the setting is 0 records",
        file="faust_assigner/app/rebalance/warming.py",
        old="if from_nothing is None:",
        new="if not from_nothing:",
        red=(
            "tests/unit/app/rebalance/test_warming.py::"
            "test_newcomers_wait_for_short_tables_where_the_next_round_is_near[said2-0-0]",
        ),
    ),
)

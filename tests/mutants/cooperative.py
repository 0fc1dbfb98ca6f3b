"""Planted bugs of cooperative rounds."""

from __future__ import annotations

from tests.mutants import Mutant

COORDINATOR = "faust_assigner/app/membership/coordinator.py"
HANDING = "faust_assigner/app/rebalance/incremental.py"
BY_STATE = "faust_assigner/app/recovery/by_partition.py"
ORDER = "faust_assigner/app/recovery/order.py"
FETCHER = "faust_assigner/app/consumer/fetcher.py"
LEADER = "faust_assigner/app/rebalance/leader.py"
INSTALL = "faust_assigner/app/rebalance/install.py"
MEMBER = "faust_assigner/app/rebalance/member.py"
TWO_PHASE = "faust_assigner/app/rebalance/two_phase.py"

PLAYED = "tests/integration/app/membership/test_coordinator.py::test_"
HANDS = "tests/integration/app/rebalance/test_incremental.py::test_"
RESTORES = "tests/integration/app/recovery/test_restores.py::test_"
PROMISED = "tests/unit/app/rebalance/test_promised.py::test_"
BACK = "tests/integration/app/membership/test_coming_back.py::test_"
FETCHED = "tests/integration/app/consumer/test_fetcher.py::test_"
TURNS = "tests/integration/app/consumer/test_turns.py::test_"
ALONE = "tests/unit/app/consumer/test_fetcher.py::test_"
LET_GO = "tests/unit/app/rebalance/test_incremental.py::test_"
BESIDE = "tests/unit/app/recovery/test_by_partition.py::test_"
STEP = "tests/unit/app/rebalance/test_step.py::test_"
LANDED = "tests/unit/app/rebalance/test_landed.py::test_"
FULL = "tests/integration/app/recovery/test_full_disk.py::test_"
UNREADABLE = "tests/integration/app/consumer/test_unreadable.py::test_"
RULE = "tests/unit/app/rebalance/test_two_phase.py::test_"

MUTANTS = (
    Mutant(
        "an old claim of the next owner passes for the word of the present one",
        TWO_PHASE,
        "theirs[topic][own] = one.data.generation\n",
        "theirs[topic][own] = 1 << 40\n",
        (f"{RULE}who_says_that_it_processes_what_another_got_since_waits_for_that_one",),
    ),
    Mutant(
        "a member with old claims holds up the group for ever",
        TWO_PHASE,
        "rounds.get(one.member_id, 0) >= MOST_HELD_UP",
        "False",
        (f"{RULE}a_member_that_claims_old_things_for_ever_is_disbelieved_after_a_while",),
    ),
    Mutant(
        "one that missed an answer is never believed again",
        TWO_PHASE,
        "    return {m: before.get(m, 0) + 1 for m in by}\n",
        "    return {m: before.get(m, 0) + (m in by) for m in {*before, *by}}\n",
        (f"{RULE}one_that_misses_a_few_answers_is_believed_all_the_same",),
    ),
    Mutant(
        "what a turn took beside a corrupt batch is passed over",
        FETCHER,
        "            self._put_back(states, before)\n",
        "",
        (
            f"{UNREADABLE}others_flow_without_a_hole_beside_a_partition_that_cannot_be_read[corrupt]",
        ),
    ),
    Mutant(
        "a record that a broker cuts off is passed over",
        FETCHER,
        "        asyncio.get_running_loop().call_soon(state.seek, state.position)\n",
        "",
        (f"{UNREADABLE}others_flow_without_a_hole_beside_a_partition_that_cannot_be_read[cut]",),
    ),
    Mutant(
        "what a broker refuses is asked for with each fetch",
        FETCHER,
        "                self.refused.refused(tp, state, monotonic())\n",
        "                pass\n",
        (f"{UNREADABLE}what_a_broker_refuses_is_left_out_of_the_fetches_of_others",),
    ),
    Mutant(
        story="a batch of a leaving partition waits for records that will not come",
        file="faust_assigner/app/consumer/batches.py",
        old="any(message.tp in leaving for message in list(consumer._unacked_messages))",
        new="False",
        red=(
            f"{HANDS}a_batch_that_is_being_made_is_handed_out_when_its_partitions_go[False-None]",
            f"{HANDS}a_batch_that_is_being_made_is_handed_out_when_its_partitions_go[False-3600.0]",
        ),
    ),
    Mutant(
        story="an eager round waits for ever for a batch without records to fill it",
        file="faust_assigner/app/consumer/batches.py",
        old=(
            "        return (\n"
            "            self.app.should_stop\n"
            "            or not self.app.flow_control.is_active()\n"
            "            or any(message.tp in leaving for message in list(consumer._unacked_messages))"
        ),
        new=(
            "        return self.app.should_stop or any(\n"
            "            message.tp in leaving for message in list(consumer._unacked_messages)"
        ),
        red=(f"{HANDS}a_batch_that_is_being_made_is_handed_out_when_its_partitions_go[True-None]",),
    ),
    Mutant(
        "a task is given away while its owner still processes it",
        TWO_PHASE,
        "    blocked, held_up_by = _blocked(placement, said)\n",
        "    blocked, held_up_by = {}, frozenset()\n",
        (RULE + "a_newcomer_gets_nothing_before_others_have_let_go",),
    ),
    Mutant(
        "a member that never lets go keeps partitions from everybody for ever",
        TWO_PHASE,
        (
            "            away = claimed[\n"
            "                elsewhere\n"
            "                & (one.data.generation < settled[topic][claimed])\n"
            "                & (one.data.generation > theirs[topic][claimed])\n"
            "            ]"
        ),
        "            away = claimed[elsewhere & (one.data.generation > theirs[topic][claimed])]",
        (RULE + "a_claim_against_what_its_member_was_told_blocks_one_round_only",),
    ),
    Mutant(
        "a member stands by for what it processes itself",
        TWO_PHASE,
        "[p for p in spare if p not in set(own)]",
        "list(spare)",
        (RULE + "what_stays_beside_a_stock_member_is_kept_warm_by_others_alone",),
    ),
    Mutant(
        "the second round knows nothing of what the first one promised",
        MEMBER,
        "        promised=memory.answer.promised if memory.answer is not None else {},\n",
        "",
        (PROMISED + "what_was_promised_is_said_and_then_given",),
    ),
    Mutant(
        "files of partitions that left long ago are taken for copies between two rounds",
        MEMBER,
        "[p for p in numbers if p in promised[t]]",
        "numbers",
        (PROMISED + "files_of_what_was_promised_count_until_it_is_given",),
    ),
    Mutant(
        "files of what is promised are forgotten before it comes",
        MEMBER,
        "[p for p in numbers if p in promised[t]]",
        "[]",
        (PROMISED + "files_of_what_was_promised_count_until_it_is_given",),
    ),
    Mutant(
        "after a leave loads stay uneven: nobody asks for the round that evens them out",
        "faust_assigner/app/rebalance/leader.py",
        "found is not anew and inputs.warmups is not None:",
        "False:",
        (RULE + "after_a_leave_loads_come_even_by_themselves",),
    ),
    Mutant(
        "records under way are not waited for before their partition goes",
        HANDING,
        "        await self._finish(revoked)\n",
        "        pass\n",
        (HANDS + "what_goes_is_committed_up_to_its_last_processed_record",),
    ),
    Mutant(
        "a restore under way resumes what has been let go",
        HANDING,
        "        await app.tables.recovery.interrupt()\n",
        "        pass\n",
        (RESTORES + "what_goes_while_it_is_about_to_flow_does_not_flow",),
    ),
    Mutant(
        "the first round's partitions are taken on after the second one's",
        BY_STATE,
        "        async with self._in_turn:\n",
        "        if True:\n",
        (RESTORES + "a_round_that_comes_while_the_first_recovery_begins_is_the_one_that_counts",),
    ),
    Mutant(
        "later rows of a batch at hand pass for the ones before them",
        HANDING,
        "            self._in_hand[tp].clear()",
        "            pass",
        (RESTORES + "what_is_on_its_way_to_a_copy_is_read_again_in_order",),
    ),
    Mutant(
        "later records of a batch at hand pass for the ones before them, once their partition is back",
        HANDING,
        "        self._put_down(revoked)\n",
        "",
        (BACK + "what_comes_back_while_a_batch_is_held_up_is_read_from_its_commit",),
    ),
    Mutant(
        "a client's consumer drops the answers to what it asked",
        HANDING,
        (
            "        return (\n"
            "            self.app.client_only or tp in self._active_partitions or tp in self._buffered_partitions\n"
            "        )"
        ),
        "        return tp in self._active_partitions or tp in self._buffered_partitions",
        (BACK + "a_client_without_a_group_gets_the_answers_to_what_it_asked",),
    ),
    Mutant(
        "what was dropped before anything was committed is never read again",
        "faust_assigner/app/consumer/fetching.py",
        "start = first_read.get(tp) if offsets[tp] is None else offsets[tp]",
        "start = offsets[tp]",
        (BACK + "after_a_table_failed_at_its_first_records_they_are_read_again[FullDiskByState]",),
    ),
    Mutant(
        "a database is noted by the thread that opened it",
        "faust_assigner/app/tables/databases.py",
        "    store.app.loop.call_soon_threadsafe(store._dbs.__setitem__, partition, database)\n",
        "    store._dbs[partition] = database\n",
        (
            "tests/unit/app/tables/test_databases.py::"
            "test_a_database_opened_in_a_thread_is_noted_by_the_streams_own",
        ),
    ),
    Mutant(
        "a stream flows before its own table is restored",
        ORDER,
        "    return {tp for tp in sources if tp.partition not in numbers}",
        "    return set(sources)",
        (RESTORES + "kept_partitions_flow_while_a_cold_one_is_restored",),
    ),
    Mutant(
        "what was queued when a table failed is never read again",
        BY_STATE,
        'await insist(self, "Committed offsets", partial(consumer.seek_some, sources))',
        "pass",
        (RESTORES + "after_a_table_failed_streams_go_on_from_what_is_committed",),
    ),
    Mutant(
        "a backlog that was taken over queues ahead of what was kept",
        INSTALL,
        "    lanes.install(app)\n",
        "",
        (HANDS + "a_backlog_that_was_taken_over_does_not_hold_up_what_was_kept",),
    ),
    Mutant(
        "a commit that meets a round costs the membership",
        COORDINATOR,
        "committing != self.generation):\n            return\n",
        "committing != self.generation):\n            pass\n",
        (PLAYED + "a_refused_commit_of_an_old_generation_loses_no_membership",),
    ),
    Mutant(
        "a commit is sent without a generation, since the membership was lost meanwhile",
        COORDINATOR,
        "if self.membership.lost or self.must_stand_still():\n                raise errors.Comm",
        "if self.must_stand_still():\n                raise errors.Comm",
        (PLAYED + "a_membership_that_is_lost_while_the_coordinator_is_looked_for_commits_nothing",),
    ),
    Mutant(
        "what streams passed over in a moment of doubt is lost once an answer comes",
        COORDINATOR,
        "        self.membership.stood |= self.is_overdue()\n        return self.membership.stood\n",
        "        return self.is_overdue()\n",
        (PLAYED + "who_stood_still_for_a_moment_reads_again_what_was_passed_over",),
    ),
    Mutant(
        "the producer of a partition that went goes on",
        "faust_assigner/app/transactions/manager.py",
        "            await self.producer.stop_transaction(one)",
        "            pass",
        (
            "tests/integration/app/transactions/test_transactions.py::"
            "test_a_round_ends_what_goes_and_begins_what_comes",
        ),
    ),
    Mutant(
        "two rounds in a row end the coordination",
        COORDINATOR,
        "        await asyncio.sleep(0)\n        await super()._stop_heartbeat_task()\n",
        "        await super()._stop_heartbeat_task()\n",
        (PLAYED + "two_rounds_without_a_step_in_between_do_not_end_the_coordination",),
    ),
    Mutant(
        "what is kept stands still while what is gained is looked up",
        FETCHER,
        "        self._look_up(assignment, wanted)\n",
        "",
        (FETCHED + "what_is_kept_flows_while_what_is_gained_is_looked_up[committed]",),
    ),
    Mutant(
        "a former leader is asked for a position until metadata grow old",
        FETCHER,
        "            self._client.force_metadata_update()\n",
        "            pass\n",
        (FETCHED + "what_is_looked_up_at_a_former_leader_is_looked_for_anew",),
    ),
    Mutant(
        "records that nobody takes hold up the next fetch",
        FETCHER,
        (
            "            if tp not in self._records\n"
            "            and self.is_wanted(tp)\n"
            "            and not self._is_left_alone(assignment.state_value(tp), now)"
        ),
        "            if self.is_wanted(tp) and not self._is_left_alone(assignment.state_value(tp), now)",
        (FETCHED + "records_that_nobody_takes_hold_up_no_other_partition",),
    ),
    Mutant(
        "what is paused is fetched beside what flows",
        FETCHER,
        (
            "            if tp not in self._records\n"
            "            and self.is_wanted(tp)\n"
            "            and not self._is_left_alone(assignment.state_value(tp), now)"
        ),
        "            if tp not in self._records and not self._is_left_alone(assignment.state_value(tp), now)",
        (FETCHED + "what_is_paused_is_neither_looked_up_nor_fetched_until_it_is_resumed",),
    ),
    Mutant(
        "a backlog has every turn until it is done",
        FETCHER,
        "                self._records.move_to_end(tp)\n",
        "                pass\n",
        (TURNS + "what_keeps_up_comes_first_and_backlogs_take_turns",),
    ),
    Mutant(
        "what is kept waits until each backlog has had its turn",
        FETCHER,
        "if max_records and max_records > 1 and 0 < len(keep_up) < len(there):\n",
        "if False:\n",
        (TURNS + "what_keeps_up_comes_first_and_backlogs_take_turns",),
    ),
    Mutant(
        "a backlog of large records keeps up",
        FETCHER,
        "end is None or state.position >= end",
        "tp not in self._records",
        (TURNS + "a_backlog_of_which_a_fetch_has_been_emptied_is_one_still",),
    ),
    Mutant(
        "what went with everything read comes back as if it kept up",
        FETCHER,
        "        self._at_end &= assignment.tps",
        "        pass",
        (TURNS + "what_comes_back_counts_as_taken_over",),
    ),
    Mutant(
        "an error of a standby costs records of sources",
        "faust_assigner/app/consumer/fetching.py",
        "        put_back(consumer.seek, live)\n",
        "",
        (
            "tests/unit/app/consumer/test_fetching.py::"
            "test_an_error_of_a_standby_costs_no_record_of_a_source",
        ),
    ),
    Mutant(
        "who takes over reads a table to an end before which changes are on their way",
        HANDING,
        "        await app.producer.flush()\n",
        "        pass\n",
        (LET_GO + "what_goes_is_finished_committed_and_written_down_in_this_order",),
    ),
    Mutant(
        "what comes flows before its tables are restored",
        HANDING,
        "        self._paused_partitions |= gained\n",
        "",
        (LET_GO + "what_comes_is_paused_and_told_to_agents_topics_and_tables",),
    ),
    Mutant(
        "a restore that was interrupted goes on beside the next one",
        BY_STATE,
        "            await asyncio.wait(under_way)\n",
        "            pass\n",
        (BESIDE + "an_interrupted_restore_has_ended_before_anything_else_begins",),
    ),
    Mutant(
        "rows of a partition that went are written to a database that was closed",
        BY_STATE,
        "        self.flush_buffers()  # a later flush would open them again\n",
        "",
        (BESIDE + "what_went_is_closed_after_what_waits_was_written",),
    ),
    Mutant(
        "half of a turn is for what nobody asks for",
        FETCHER,
        "for tp in self._records if tp in share}",
        "for tp in self._records}",
        (ALONE + "nobody_waits_beside_records_nor_leaves_room_for_what_nobody_asks_for",),
    ),
    Mutant(
        "what keeps up takes whole turns beside a backlog that was fetched later",
        FETCHER,
        (
            "        return (\n"
            "            tp not in self.but_not\n"
            "            and (self.only is None or tp in self.only)\n"
            "            and (not self.partitions or tp in self.partitions)"
        ),
        (
            "        return (self.only is None or tp in self.only) and (\n"
            "            not self.partitions or tp in self.partitions"
        ),
        (ALONE + "a_share_is_a_part_of_what_is_asked_for",),
    ),
    Mutant(
        "brokers hold a fetch for long while partitions are left out of it",
        FETCHER,
        "IDLE_WAIT_MS if is_whole else WAIT_MS",
        "WAIT_MS if is_whole else IDLE_WAIT_MS",
        (ALONE + "a_broker_may_hold_a_fetch_while_no_partition_is_left_out",),
    ),
    Mutant(
        "the fetcher looks what there is to do all the time",
        FETCHER,
        "len(self._in_flight) > len(",
        "len(self._in_flight) >= len(",
        (ALONE + "the_fetcher_looks_again_only_where_a_fetch_has_been_dealt_with[False]",),
    ),
    Mutant(
        "a look-up hides that a fetch has been dealt with",
        FETCHER,
        "len(self._pending_tasks - set(self._looked_up.values()))",
        "len(self._pending_tasks)",
        (ALONE + "the_fetcher_looks_again_only_where_a_fetch_has_been_dealt_with[True]",),
    ),
    Mutant(
        "an owner loses its task to the claim of a member that was frozen for some rounds",
        TWO_PHASE,
        (
            "            away = claimed[\n"
            "                elsewhere\n"
            "                & (one.data.generation < settled[topic][claimed])\n"
            "                & (one.data.generation > theirs[topic][claimed])\n"
            "            ]"
        ),
        "            away = claimed[elsewhere & (one.data.generation < settled[topic][claimed])]",
        (STEP + "an_owner_that_processes_a_task_keeps_it_whoever_claims_it_from_before",),
    ),
    Mutant(
        "beside a stock member who leaves ends the leader's round",
        TWO_PHASE,
        "if not one.data.holds or one.member_id not in actives:",
        "if not one.data.holds:",
        (STEP + "beside_a_stock_member_only_who_processes_a_task_keeps_it",),
    ),
    Mutant(
        "what goes from who leaves is given before it has let go",
        LEADER,
        "now = step(placement, said)",
        "now = step(placement, staying)",
        (RULE + "a_member_that_leaves_may_take_part_in_the_second_round",),
    ),
    Mutant(
        "the second round is planned anew since who leaves takes part in it",
        LEADER,
        "_place(inputs, staying)",
        "_place(inputs, said)",
        (RULE + "a_member_that_leaves_may_take_part_in_the_second_round",),
    ),
    Mutant(
        "where all leave nobody owns anything",
        LEADER,
        "if not j.data.leaves) or said",
        "if not j.data.leaves)",
        (RULE + "where_all_leave_partitions_stay_where_they_are",),
    ),
    Mutant(
        "a death between two rounds leaves tasks to nobody",
        TWO_PHASE,
        "if len(dates) != 1 or min(dates)[1] != len(said):",
        "if len(dates) != 1 or not min(dates)[1]:",
        (LANDED + "a_death_between_the_rounds_makes_it_be_planned_anew",),
    ),
    Mutant(
        "a fetch that ends while records are taken is not followed by another",
        FETCHER,
        "            asyncio.get_running_loop().call_soon(self.wake)\n",
        "            pass\n",
        (FETCHED + "a_fetch_that_ends_while_records_are_taken_is_followed_by_the_next",),
    ),
    Mutant(
        "what is resumed waits for the fetcher's next look",
        HANDING,
        "        super().resume_partitions(tps)\n        self._wake_fetcher()\n",
        "        super().resume_partitions(tps)\n",
        (FETCHED + "what_a_worker_resumes_is_fetched_at_once",),
    ),
    Mutant(
        "fetches wait while a member that joins opens its files",
        COORDINATOR,
        "await asyncio.to_thread(self.membership.assignor.look_at_files, subscription.topics)",
        "self.membership.assignor.look_at_files(subscription.topics)",
        (FETCHED + "what_is_kept_flows_while_a_member_that_joins_looks_at_its_files",),
    ),
    Mutant(
        "what is taken over waits for the files of copies",
        BY_STATE,
        "        await self._open(pending)\n",
        "        await self._open(pending | fresh)\n",
        (
            "tests/integration/app/rebalance/test_taking_on.py::"
            "test_what_is_taken_over_flows_before_the_files_of_copies_are_open",
        ),
    ),
    Mutant(
        "a copy whose disk was full is left without rows for good",
        "faust_assigner/app/recovery/loop.py",
        "        self._reopen = frozenset(self.tp_to_table)\n",
        "        self._reopen = frozenset(self.active_tps)\n",
        (
            f"{FULL}a_copy_that_could_not_be_written_is_read_again[owned0]",
            f"{FULL}a_copy_that_could_not_be_written_becomes_an_owner_with_all_rows",
        ),
    ),
)

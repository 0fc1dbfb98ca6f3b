"""Planted bugs of the room that knows Faust."""

from __future__ import annotations

from tests.mutants import Mutant

FETCHING = "faust_assigner/app/consumer/fetching.py"
COMMITS = "faust_assigner/app/consumer/commits.py"
TRANSACTIONS = "faust_assigner/app/transactions/manager.py"
WHOLE_RECORDS = "faust_assigner/app/consumer/whole_records.py"
BATCHES = "faust_assigner/app/consumer/batches.py"
REPLAY_LOOP = "faust_assigner/app/recovery/replay_loop.py"
RECOVERY = "faust_assigner/app/recovery/loop.py"
CLAIMS = "faust_assigner/app/rebalance/member_claims.py"
EXCHANGE = "faust_assigner/app/recovery/restoring.py"
PROVIDER = "faust_assigner/app/weights/provider.py"
SOURCES = "faust_assigner/app/weights/sources.py"

LOST = "tests/integration/app/consumer/test_nothing_lost.py"
GUARDS = "tests/integration/app/membership/test_guards.py"
WHOLE = "tests/integration/app/transactions/test_whole_transactions.py"
WHOLE_BATCHES = "tests/integration/app/consumer/test_whole_batches.py"
ROUTER = "tests/integration/app/queries/test_forwarding.py"
BELIEVED = "tests/unit/app/rebalance/test_who_is_believed.py"
EXCHANGED = "tests/unit/app/recovery/test_exchange.py"
WITHDRAWN = "tests/unit/app/weights/test_withdrawn.py"

PUT_BACK = (
    f"{GUARDS}::test_a_batch_that_arrives_while_the_flow_is_stopped_is_put_back_whole"
    "[nothing committed]"
)
HOLE = f"{GUARDS}::test_nothing_acknowledged_beyond_a_hole_outlives_its_generation"
LEFT = f"{WHOLE_BATCHES}::test_nothing_of_a_generation_is_left_in_the_one_after_the_next"
OVERLAP = f"{WHOLE_BATCHES}::test_a_commit_comes_while_records_flow_that_overlap"
BATCH = f"{WHOLE_BATCHES}::test_what_a_batch_sends_is_in_the_transaction_that_commits_its_records"
OVERTAKEN = f"{EXCHANGED}::test_an_exchange_that_was_overtaken_touches_nothing"

_FETCHED = (
    Mutant(
        "a batch that arrives while the flow is stopped is not put back",
        FETCHING,
        "            seek(tp, batch[0].offset)\n",
        "            pass\n",
        (PUT_BACK,),
    ),
    Mutant(
        "a batch that arrives while the flow is stopped is put back but for its first records",
        FETCHING,
        "seek(tp, batch[0].offset)",
        "seek(tp, batch[-1].offset)",
        (PUT_BACK,),
    ),
    Mutant(
        "a batch that arrives while the flow is stopped is handed over all the same",
        FETCHING,
        "    if thread.consumer.flow_active:\n",
        "    if True:\n",
        (PUT_BACK,),
    ),
    Mutant(
        "a full buffer of the last generation wakes its partition in this one",
        FETCHING,
        "        self.app.flow_control.suspend()\n        self._buffered_partitions.clear()\n",
        "        self.app.flow_control.suspend()\n        self._buffered_partitions.update(assigned)\n",
        (f"{GUARDS}::test_no_pause_or_full_buffer_outlives_its_generation",),
    ),
    Mutant(
        "an overtaken recovery lets records flow again",
        FETCHING,
        "        if not self._between_generations:\n            super().resume_flow()\n",
        "        super().resume_flow()\n",
        (
            f"{LOST}::test_a_recovery_overtaken_by_a_rebalance_starts_no_flow[repaired]",
            f"{GUARDS}::test_the_recovery_of_an_old_generation_resumes_nothing",
        ),
    ),
    Mutant(
        "partitions held for a seek stay held after it",
        FETCHING,
        "        finally:\n            self._held = None\n",
        "        finally:\n            pass\n",
        (f"{GUARDS}::test_partitions_held_for_a_seek_that_fails_resume_later",),
    ),
)

_RECOVERED = (
    Mutant(
        "a recovery ends while its last record is between fetcher and queue",
        REPLAY_LOOP,
        "if self._fetched[tp] < rounds and",
        "if self._fetched[tp] <= rounds and",
        (f"{GUARDS}::test_a_recovery_waits_for_a_record_between_fetcher_and_queue",),
    ),
    Mutant(
        "a recovery ends although the last record was not fetched yet",
        REPLAY_LOOP,
        "position > highwater\n",
        "position >= highwater\n",
        (f"{GUARDS}::test_a_recovery_waits_for_the_record_at_the_position",),
    ),
    Mutant(
        "a changelog record of the last generation is applied in this one",
        REPLAY_LOOP,
        (
            "        return message.generation_id in (None, self.app.consumer_generation_id) and (\n"
            "            message.tp in recovery.active_tps or message.tp in recovery.standby_tps\n"
            "        )"
        ),
        "        return message.tp in recovery.active_tps or message.tp in recovery.standby_tps",
        (f"{GUARDS}::test_a_changelog_record_of_an_old_generation_is_left_out",),
    ),
    Mutant(
        "the overtaken rebalance of an old generation counts as the new one's start",
        RECOVERY,
        "if self.signal_recovery_start.is_set():\n            self.app",
        "if True:\n            self.app",
        (f"{GUARDS}::test_the_recovery_of_an_old_generation_resumes_nothing",),
    ),
    Mutant(
        "an exchange overtaken by a generation replaces a database in use",
        EXCHANGE,
        "            if built is None or not self._is_standby(tp, generation_id):\n",
        "            if built is None:\n",
        (
            f"{OVERTAKEN}[a generation]",
            f"{OVERTAKEN}[it is no standby any more]",
            f"{OVERTAKEN}[a revocation]",
        ),
    ),
    Mutant(
        "an exchange of the last generation's standby goes on in this one",
        EXCHANGE,
        (
            "        return (\n"
            "            tp in self.standby_tps\n"
            "            and self.app.consumer_generation_id == generation_id\n"
            "            and not self._stop()\n"
            "        )"
        ),
        "        return tp in self.standby_tps and not self._stop()",
        (f"{OVERTAKEN}[a generation]",),
    ),
)

_COMMITTED = (
    Mutant(
        "a consumer's last acknowledged offsets are forgotten before the final commit",
        COMMITS,
        "            await tell_app(revoked)\n",
        "            self._forget(revoked)\n            await tell_app(revoked)\n",
        (f"{LOST}::test_the_final_commit_reaches_the_broker",),
    ),
    *(
        Mutant(
            f"{book} outlives the loss of its partition",
            COMMITS,
            f"            self.{book},\n",
            "",
            (HOLE,),
        )
        for book in ("_gap", "_acked", "_acked_index", "_read_offset", "_committed_offset")
    ),
    Mutant(
        "a commit passes the record under way",
        COMMITS,
        "if not message.acked and message.generation_id == self.app.consumer_generation_id:",
        "if False:",
        (
            f"{GUARDS}::test_a_commit_does_not_pass_the_record_under_way_before_those_done"
            "[nothing committed-repaired]",
            f"{GUARDS}::test_a_commit_does_not_pass_the_record_under_way_before_those_done"
            "[committed before-repaired]",
        ),
    ),
)

_IN_TRANSACTIONS = (
    Mutant(
        "shares of the last generation are committed with this one's",
        TRANSACTIONS,
        "        for transactional_id in {*self._shares, *self._closed}:\n            self._drop(transactional_id)\n",
        "        for share in self._shares.values():\n            share.abandon()\n",
        (LEFT,),
    ),
    Mutant(
        "the clock of a commit that waits runs on over a generation",
        WHOLE_RECORDS,
        "            self._late_since.clear()\n",
        "",
        (LEFT,),
    ),
    Mutant(
        "records held back in the last generation are never let go",
        TRANSACTIONS,
        "for transactional_id in list(self._settling):\n",
        "for transactional_id in ():\n",
        (LEFT,),
    ),
    Mutant(
        "what a revoked record had attached is published again with its repetition",
        TRANSACTIONS,
        "        self.app._attachments._pending.clear()\n",
        "",
        (LEFT,),
    ),
    Mutant(
        "what a final commit leaves open stays open",
        TRANSACTIONS,
        "                await self.producer.abort_transaction(transactional_id)\n",
        "                pass\n",
        (f"{WHOLE}::test_what_a_revocation_leaves_half_done_is_aborted[repaired]",),
    ),
    Mutant(
        "apps of one process share the driver's producers",
        TRANSACTIONS,
        "            self.producer._transaction_producers, self.producer._trn_locks = {}, {}\n",
        "",
        (f"{WHOLE_BATCHES}::test_a_rebalance_of_one_app_leaves_the_transactions_of_another_open",),
    ),
    Mutant(
        "a record of another app owns what it sends through this one",
        TRANSACTIONS,
        "event is None or event.app is not self.app or not",
        "event is None or not",
        (f"{WHOLE_BATCHES}::test_a_record_of_another_app_owns_nothing_here",),
    ),
    Mutant(
        "new records are not held back for a commit",
        WHOLE_RECORDS,
        "                        self.transactions.settle(transactional_id)\n",
        "                        pass\n",
        (OVERLAP,),
    ),
    Mutant(
        "a commit that waited for slow records never comes to them",
        WHOLE_RECORDS,
        "            self._soon = self.add_future(self._commit_soon())\n",
        "            pass\n",
        (
            f"{WHOLE_BATCHES}::test_a_commit_follows_as_soon_as_the_records_are_done_that_held_it_up",
        ),
    ),
    Mutant(
        "what the next record has attached is published with this commit",
        WHOLE_RECORDS,
        "self._handle_attached({tp: offset - 1})",
        "self._handle_attached({tp: offset})",
        (f"{WHOLE_BATCHES}::test_what_is_published_on_commit_is_in_that_transaction[repaired]",),
    ),
    Mutant(
        "what is published on commit is in no transaction",
        WHOLE_RECORDS,
        "            with self.transactions.within(tp):\n",
        "            if True:\n",
        (f"{WHOLE_BATCHES}::test_what_is_published_on_commit_is_in_that_transaction[repaired]",),
    ),
    Mutant(
        "a batch owns nothing of what is sent for it",
        BATCHES,
        "            _current_event.set(weakref.ref(batch[-1].event))\n",
        "",
        tuple(
            f"{BATCH}[{how}-repaired]"
            for how in ("take", "take_events", "take_with_timestamp", "noack_take")
        ),
    ),
    Mutant(
        "a batch counts as done with its first record",
        BATCHES,
        "weakref.ref(batch[-1].event)",
        "weakref.ref(batch[0].event)",
        (f"{BATCH}[take-repaired]", f"{BATCH}[noack_take-repaired]"),
    ),
    Mutant(
        "a batch mixes partitions",
        BATCHES,
        "setdefault(taken.event.message.tp, [])",
        "setdefault(None, [])",
        (f"{BATCH}[take-repaired]",),
    ),
    Mutant(
        "a batch of the last generation is processed in this one",
        BATCHES,
        (
            "        return [\n"
            "            taken\n"
            "            for taken in self.batches.popleft()\n"
            "            if taken.event.message.generation_id == generation\n"
            "        ]"
        ),
        "        return [taken for taken in self.batches.popleft()]",
        (f"{WHOLE_BATCHES}::test_records_read_in_the_last_generation_are_in_no_batch_of_this_one",),
    ),
    Mutant(
        "a commit waits until a batch is full",
        BATCHES,
        "bool(events) and (stopping or self.app.consumer.transactions.waits_for(events))",
        "bool(events) and stopping",
        (f"{WHOLE_BATCHES}::test_a_commit_does_not_wait_until_a_batch_is_full",),
    ),
    Mutant(
        "a revocation waits until a batch is full",
        BATCHES,
        "bool(events) and (stopping or ",
        "bool(events) and (",
        (f"{WHOLE_BATCHES}::test_a_revocation_does_not_wait_until_a_batch_is_full",),
    ),
)

_BELIEVED = (
    Mutant(
        story="what a member owns is dated as if it had never owned anything",
        file="faust_assigner/app/rebalance/member.py",
        old="    clock = kafkas if kafkas >= 0 else before.generation + 1\n",
        new="    clock = kafkas\n",
        red=(f"{BELIEVED}::test_where_kafkas_generation_is_unknown_claims_are_dated_one_on",),
    ),
    Mutant(
        "a stale member's word names transactional ids",
        "faust_assigner/app/rebalance/leader.py",
        "key=lambda j: (j.data.generation, j.data.version)",
        "key=lambda j: -j.data.generation",
        (f"{BELIEVED}::test_a_groups_id_is_the_newest_members_word",),
    ),
    Mutant(
        "stock's numbering goes before ours",
        "faust_assigner/app/rebalance/leader.py",
        "key=lambda j: (j.data.generation, j.data.version)",
        "key=lambda j: j.data.generation",
        (f"{BELIEVED}::test_of_one_age_our_word_on_ids_goes_before_stocks",),
    ),
    Mutant(
        "a member keeps its own old transactional ids",
        "faust_assigner/app/rebalance/member.py",
        "{**before.group_ids, **answer.group_ids}",
        "{**answer.group_ids, **before.group_ids}",
        (f"{BELIEVED}::test_the_answers_ids_go_before_those_a_member_remembers",),
    ),
    Mutant(
        "equal bytes of other subscriptions are read as the first member's",
        "faust_assigner/wire/join.py",
        "key = (tag, body.data, topics)",
        "key = (tag, body.data, ())",
        (f"{BELIEVED}::test_members_that_say_equal_bytes_of_other_topics_are_read_apart",),
    ),
    Mutant(
        "equal bytes of two fields are read as the first one",
        "faust_assigner/wire/join.py",
        "key = (tag, body.data, topics)",
        "key = (0, body.data, topics)",
        (f"{BELIEVED}::test_equal_bytes_of_two_fields_are_read_apart",),
    ),
    Mutant(
        "an old directory goes before a member's newer memory",
        CLAIMS,
        "elif data.instance_id and data.generation < 0:",
        "elif data.instance_id:",
        (f"{BELIEVED}::test_a_members_own_memory_goes_before_an_old_directory",),
    ),
    Mutant(
        "a claim from the future voids what was claimed in the last generation",
        CLAIMS,
        "(min(date, newest) if is_kafkas else date for date in dates)",
        "dates",
        (f"{BELIEVED}::test_a_claim_from_the_future_is_as_old_as_the_last_generation",),
    ),
    Mutant(
        "weights that were deleted come back while time passes",
        PROVIDER,
        "        elif found is not None:\n            self._document = None\n",
        "",
        (f"{WITHDRAWN}::test_a_file_deleted_after_a_good_one_stays_out_of_force",),
    ),
    Mutant(
        "a weights file that comes back unchanged stays out of force",
        SOURCES,
        "seen, found = None, NoWeights",
        "found = NoWeights",
        (f"{WITHDRAWN}::test_a_file_that_comes_back_unchanged_is_in_force_again",),
    ),
)

_ROUTED = (
    Mutant(
        "credentials go to whoever advertised a URL",
        "faust_assigner/app/queries/forwarding.py",
        "kept_back = KEPT_BACK if named(dest_url, self._trusted) else KEPT_BACK | CREDENTIALS",
        "kept_back = KEPT_BACK",
        (
            f"{ROUTER}::test_credentials_stay_and_the_rest_goes_along",
            f"{ROUTER}::test_credentials_go_on_to_named_workers_only[10.0.0.0/8-False]",
        ),
    ),
    Mutant(
        "credentials go to nobody, whatever the setting",
        "faust_assigner/app/queries/forwarding.py",
        "KEPT_BACK if named(dest_url, self._trusted) else KEPT_BACK | CREDENTIALS",
        "KEPT_BACK | CREDENTIALS",
        (f"{ROUTER}::test_credentials_go_on_to_named_workers_only[127.0.0.1-True]",),
    ),
)

MUTANTS = (*_FETCHED, *_RECOVERED, *_COMMITTED, *_IN_TRANSACTIONS, *_BELIEVED, *_ROUTED)

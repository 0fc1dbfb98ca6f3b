"""Planted bugs of what keeps rows right: who may write and who may read them."""

from __future__ import annotations

from tests.mutants import Mutant

MEMBERSHIP = "faust_assigner/app/membership/fence.py"

MEMBER = "tests/integration/app/membership/test_fence.py"
OVER = "tests/unit/app/tables/test_store.py"
SHARED = "tests/unit/app/tables/test_shared.py"
SETS = "tests/unit/app/tables/test_sets.py"
SETS_FILE = "faust_assigner/app/tables/sets.py"
CHANGES = "faust_assigner/app/tables/changes.py"
STORE = "faust_assigner/app/tables/store.py"
SHARES = "faust_assigner/app/transactions/shares.py"
WAITS_FOR_ROOM = "faust_assigner/app/consumer/room.py"

WAITS = f"{MEMBER}::test_changes_wait_while_nobody_knows_and_go_when_the_group_answers"
FORMER = f"{MEMBER}::test_changes_of_a_former_member_are_dropped_and_the_rest_is_sent"
ANSWER = f"{MEMBER}::test_an_answer_counts_from_when_it_was_asked_for"
LOOKED = f"{MEMBER}::test_a_request_that_waited_for_its_connection_is_looked_at_again"
MISSED = f"{MEMBER}::test_a_record_whose_change_did_not_arrive_is_not_committed"

READS = "faust_assigner/app/queries/"
ROUTING = "tests/integration/app/queries/test_routing.py::test_"
STANDING = "tests/integration/app/queries/test_standing.py::test_"
DECIDE = "tests/unit/app/queries/test_decide.py::test_"
FRESH = "tests/unit/app/queries/test_freshness.py::test_"

_MEMBERS = (
    Mutant(
        "a worker whose session may be over writes changes all the same",
        MEMBERSHIP,
        "    while changes and not fence.is_sure() and not fence.lost:",
        "    while False:",
        (WAITS,),
    ),
    Mutant(
        "changes of a former member are sent once it is a member again",
        MEMBERSHIP,
        "return self.lost or made_at < self._since",
        "return self.lost",
        (FORMER,),
    ),
    Mutant(
        "changes made after the group has refused the member are sent",
        MEMBERSHIP,
        "return self.lost or made_at < self._since",
        "return made_at < self._since",
        (FORMER,),
    ),
    Mutant(
        "a worker that the group refuses goes on as a member",
        MEMBERSHIP,
        "            fence.lose()\n",
        "            pass\n",
        (ANSWER,),
    ),
    Mutant(
        "a request that waited for its connection is written by who is no member any more",
        MEMBERSHIP,
        "        while changes:\n",
        "        while False:\n",
        (f"{LOOKED}[changes-False-False]",),
    ),
    Mutant(
        "a request of a former member is written once it is a member again",
        MEMBERSHIP,
        "if fence.losses != losses or fence.lost:",
        "if fence.lost:",
        (f"{LOOKED}[changes-True-False]",),
    ),
    Mutant(
        "a partition whose change was dropped is never sent to again",
        MEMBERSHIP,
        "        sender._muted_partitions.discard(tp)\n",
        "",
        (FORMER,),
    ),
    Mutant(
        "a node that only dropped changes were for is never sent to again",
        MEMBERSHIP,
        "        sender._in_flight.discard(node)\n",
        "        pass\n",
        (FORMER,),
    ),
    Mutant(
        "a record is committed although its change did not arrive",
        MEMBERSHIP,
        "return not self._unwritten and bool(await super()._commit(offsets))",
        "return bool(await super()._commit(offsets))",
        (MISSED,),
    ),
    Mutant(
        "a commit passes changes that are still under way",
        MEMBERSHIP,
        "        while awaited & self._under_way:\n",
        "        while False:\n",
        (MISSED,),
    ),
    Mutant(
        "a worker with a change that did not arrive lives on and commits nothing",
        MEMBERSHIP,
        '        return "a change of a table did not reach its changelog"\n',
        "        return None\n",
        (MISSED,),
    ),
)

_OVERLAID = (
    Mutant(
        "a change lands before one that was made before it",
        CHANGES,
        "            if not change.counts:\n                break\n",
        "            if not change.counts:\n                continue\n",
        (f"{OVER}::test_what_is_acknowledged_out_of_turn_waits",),
    ),
    Mutant(
        "a change counts before its transaction is committed",
        CHANGES,
        "return self.offset is not None and (self.transaction is None or self.transaction.committed)",
        "return self.offset is not None",
        (f"{OVER}::test_a_transaction_counts_once_it_is_committed[False]",),
    ),
    Mutant(
        "a row is written without its offset",
        STORE,
        "None if offset == before else (self.offset_key, offset))",
        "None)",
        (f"{OVER}::test_a_row_and_its_offset_are_on_disk_once_the_changelog_has_it",),
    ),
    Mutant(
        "a change of a partition that was let go lands all the same",
        STORE,
        "        if overlay is None or not overlay.lands:\n",
        "        if overlay is None:\n",
        (f"{OVER}::test_a_partition_given_up_lands_what_counts_and_nothing_that_comes_late",),
    ),
    Mutant(
        "what an aborted transaction changed is seen for ever",
        SHARES,
        "            store.drop(partition, self)\n",
        "            pass\n",
        (f"{OVER}::test_a_transaction_counts_once_it_is_committed[False]",),
    ),
    Mutant(
        "changes pile up without end",
        WAITS_FOR_ROOM,
        "        if self._usage.is_full and not self._is_changelog_tp(message.tp):\n",
        "        if False:\n",
        (f"{OVER}::test_a_record_waits_while_too_many_changes_do",),
    ),
    Mutant(
        "a record is held back for as long as nothing lands",
        WAITS_FOR_ROOM,
        "and monotonic() < deadline and not self.should_stop",
        "and not self.should_stop",
        (f"{OVER}::test_a_record_waits_while_too_many_changes_do",),
    ),
    Mutant(
        "a table that others write is written at once",
        STORE,
        "            kind = ReadBack if self.landing is Landing.READ_BACK else Overlay\n",
        "            kind = Overlay\n",
        (f"{SHARED}::test_a_change_is_over_the_file_until_it_is_read_back",),
    ),
    Mutant(
        "an offset of another partition's changelog is one of this file",
        STORE,
        "            offset = NO_RECORD if self.landing is Landing.APART else record.result().offset\n",
        "            offset = record.result().offset\n",
        (f"{SHARED}::test_what_nobody_reads_back_lands_as_in_stock_without_an_offset",),
    ),
    Mutant(
        "the row of a set is the set before its last operation",
        SETS_FILE,
        "        after.apply_changelog_event(operation, value)\n",
        "",
        (f"{SETS}::test_a_row_is_the_set_after_the_operation_whose_offset_it_has",),
    ),
    Mutant(
        "a set keeps what was dropped, and sends nothing when it is added again",
        STORE,
        "            self.table.data.dropped(partition, gone)\n",
        "            pass\n",
        (f"{SETS}::test_what_an_aborted_transaction_added_is_added_again",),
    ),
    Mutant(
        "a changelog that was not read is taken for empty",
        "faust_assigner/app/consumer/fetching.py",
        (
            "        ends: Mapping[Any, int] = await thread.call_thread(\n"
            "            thread._ensure_consumer().end_offsets, partitions\n"
            "        )"
        ),
        "        ends: Mapping[Any, int] = await thread.highwaters(*partitions)",
        (
            "tests/integration/app/transactions/test_whole_transactions.py::"
            "test_a_changelog_ends_where_the_broker_says[repaired]",
        ),
    ),
    Mutant(
        "what is acknowledged is lost when a store stops",
        STORE,
        "        self.give_up()\n        await super().stop()\n",
        "        await super().stop()\n",
        (f"{OVER}::test_what_is_acknowledged_is_written_before_a_store_stops",),
    ),
)

_READ = (
    Mutant(
        "a copy of any age answers",
        READS + "decide.py",
        "self.age_s is not None and self.age_s <= bound_s",
        "self.age_s is not None",
        (ROUTING + "a_table_beside_it_is_vouched_for_by_itself",),
    ),
    Mutant(
        "two workers send a request to each other for ever",
        READS + "decide.py",
        "    if not asked.is_forwarded and owner is not None and owner != own:\n",
        "    if owner is not None and owner != own:\n",
        (
            DECIDE + "what_was_forwarded_goes_no_further",
            ROUTING + "what_was_forwarded_is_answered_or_refused_here",
        ),
    ),
    Mutant(
        "a copy that lacks the last record is taken for whole",
        READS + "freshness.py",
        "if look.end <= reached]",
        "if look.end <= reached + 1]",
        (FRESH + "a_copy_is_as_old_as_the_last_look_whose_end_it_has_reached",),
    ),
    Mutant(
        "files of a copy that begins anew count for what was in them",
        READS + "freshness.py",
        "        if not passed:\n            return None\n",
        "        if not passed:\n            return self.looks[0].asked_at if self.looks else None\n",
        (FRESH + "a_copy_that_begins_anew_has_reached_nothing",),
    ),
    Mutant(
        "a view reads on when the partition has gone",
        READS + "reading.py",
        "        if not self.standing.is_owner(self.tp):\n",
        "        if False:\n",
        (ROUTING + "a_partition_that_goes_while_the_view_works_is_not_read",),
    ),
    Mutant(
        "another worker is asked than the one that has the key",
        READS + "router.py",
        "        return said.pop() if len(said) == 1 else own\n",
        "        return own\n",
        (ROUTING + "a_key_is_placed_as_the_streams_have_it[streams1-key]",),
    ),
    Mutant(
        "a dead owner is a 500",
        READS + "router.py",
        "        except (*UNREACHABLE, SameNode, ServiceUnavailable) as error:\n",
        "        except (SameNode, ServiceUnavailable) as error:\n",
        (
            ROUTING + "a_dead_owner_is_a_503_with_the_time_to_ask_again",
            ROUTING + "a_dead_owner_is_stood_in_for_by_the_copy_here",
        ),
    ),
    Mutant(
        "a change is made in a copy",
        READS + "decide.py",
        "    if not asked.changes_nothing or bound_s <= 0:\n",
        "    if bound_s <= 0:\n",
        (
            DECIDE + "what_may_change_something_goes_to_the_owner_only",
            ROUTING + "a_change_goes_to_its_owner_or_nowhere",
        ),
    ),
    Mutant(
        "a table that is being restored is read",
        "faust_assigner/app/recovery/by_partition.py",
        "return self.is_flowing and tp in self._complete and",
        "return tp in self.active_tps and",
        (
            STANDING + "a_partition_that_is_being_restored_is_not_read_and_kept_ones_are",
            STANDING + "nothing_is_read_while_everything_stands_still",
        ),
    ),
    Mutant(
        "a worker that is expelled answers from old files",
        READS + "standing.py",
        (
            "        return bool(\n"
            "            self._owns(tp)\n"
            "            and app.tables.recovery.is_restored(tp)\n"
            "            and app.consumer.is_surely_member()\n"
            "        )"
        ),
        "        return bool(self._owns(tp) and app.tables.recovery.is_restored(tp))",
        (STANDING + "rows_are_an_owners_only_while_it_is_surely_a_member",),
    ),
)

MUTANTS = (*_MEMBERS, *_OVERLAID, *_READ)

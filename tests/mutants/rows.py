"""Planted bugs of what keeps rows right: who may write changes, and what is put back."""

from __future__ import annotations

from tests.mutants import Mutant

MEMBERSHIP = "faust_assigner/app/repairs/membership.py"
UNDO = "faust_assigner/app/restore/undo.py"

MEMBER = "tests/integration/app/repairs/test_membership.py"
UNDONE = "tests/unit/app/restore/test_undo.py"
OVER = "tests/unit/app/overlay/test_store.py"
CHANGES = "faust_assigner/app/overlay/changes.py"
STORE = "faust_assigner/app/overlay/store.py"
SHARES = "faust_assigner/app/repairs/shares.py"
WAITS_FOR_ROOM = "faust_assigner/app/overlay/consumer.py"

WAITS = f"{MEMBER}::test_changes_wait_while_nobody_knows_and_go_when_the_group_answers"
FORMER = f"{MEMBER}::test_changes_of_a_former_member_are_dropped_and_the_rest_is_sent"
ANSWER = f"{MEMBER}::test_an_answer_counts_from_when_it_was_asked_for"
LOOKED = f"{MEMBER}::test_a_request_that_waited_for_its_connection_is_looked_at_again"
MISSED = f"{MEMBER}::test_a_record_whose_change_did_not_arrive_is_not_committed"

_MEMBERS = (
    Mutant("a worker whose session may be over writes changes all the same", MEMBERSHIP,
           "    while changes and not membership.is_sure() and not membership.lost:",
           "    while False:", (WAITS,)),
    Mutant("changes of a former member are sent once it is a member again", MEMBERSHIP,
           "return self.lost or made_at < self._since", "return self.lost", (FORMER,)),
    Mutant("changes made after the group has refused the member are sent", MEMBERSHIP,
           "return self.lost or made_at < self._since", "return made_at < self._since", (FORMER,)),
    Mutant("a worker that the group refuses goes on as a member", MEMBERSHIP,
           "            membership.lose()\n", "            pass\n", (ANSWER,)),
    Mutant("a request that waited for its connection is written by who is no member any more", MEMBERSHIP,
           "        while changes:\n", "        while False:\n", (f"{LOOKED}[changes-False-False]",)),
    Mutant("a request of a former member is written once it is a member again", MEMBERSHIP,
           "if membership.losses != losses or membership.lost:", "if membership.lost:",
           (f"{LOOKED}[changes-True-False]",)),
    Mutant("a partition whose change was dropped is never sent to again", MEMBERSHIP,
           "        sender._muted_partitions.discard(tp)\n", "", (FORMER,)),
    Mutant("a node that only dropped changes were for is never sent to again", MEMBERSHIP,
           "        sender._in_flight.discard(node)\n", "        pass\n", (FORMER,)),
    Mutant("a record is committed although its change did not arrive", MEMBERSHIP,
           "return not self._unwritten and bool(await super()._commit(offsets))",
           "return bool(await super()._commit(offsets))", (MISSED,)),
    Mutant("a commit passes changes that are still under way", MEMBERSHIP,
           "        while awaited & self._under_way:\n", "        while False:\n", (MISSED,)),
    Mutant("a worker with a change that did not arrive lives on and commits nothing", MEMBERSHIP,
           "        return \"a change of a table did not reach its changelog\"\n", "        return None\n",
           (MISSED,)),
)

_UNDONE = (
    Mutant("the newest of several aborted changes is put back, not the oldest", UNDO,
           "        if key not in seen:\n            seen.add(key)\n",
           "        seen.add(key)\n        if True:\n",
           (f"{UNDONE}::test_the_oldest_of_several_shares_counts",)),
    Mutant("a row that a transaction made stays when it is aborted", UNDO,
           "                batch.delete(key)\n", "                pass\n",
           (f"{UNDONE}::test_what_was_not_committed_is_put_back",)),
)

_OVERLAID = (
    Mutant("a change lands before one that was made before it", CHANGES,
           "            if not change.counts:\n                break\n",
           "            if not change.counts:\n                continue\n",
           (f"{OVER}::test_what_is_acknowledged_out_of_turn_waits",)),
    Mutant("a change counts before its transaction is committed", CHANGES,
           "return self.offset is not None and (self.transaction is None or self.transaction.committed)",
           "return self.offset is not None",
           (f"{OVER}::test_a_transaction_counts_once_it_is_committed[False]",)),
    Mutant("a row is written without its offset", STORE,
           "None if offset == before else (self.offset_key, offset))", "None)",
           (f"{OVER}::test_a_row_and_its_offset_are_on_disk_once_the_changelog_has_it",)),
    Mutant("a change of a partition that was let go lands all the same", STORE,
           "        if overlay is None or not overlay.lands:\n", "        if overlay is None:\n",
           (f"{OVER}::test_a_partition_given_up_lands_what_counts_and_nothing_that_comes_late",)),
    Mutant("what an aborted transaction changed is seen for ever", SHARES,
           "            store.drop(partition, self)\n", "            pass\n",
           (f"{OVER}::test_a_transaction_counts_once_it_is_committed[False]",)),
    Mutant("changes pile up without end", WAITS_FOR_ROOM,
           "        if self._usage.is_full and not self._is_changelog_tp(message.tp):\n",
           "        if False:\n",
           (f"{OVER}::test_a_record_waits_while_too_many_changes_do",)),
    Mutant("a record is held back for as long as nothing lands", WAITS_FOR_ROOM,
           "and monotonic() < deadline and not self.should_stop", "and not self.should_stop",
           (f"{OVER}::test_a_record_waits_while_too_many_changes_do",)),
    Mutant("what is acknowledged is lost when a store stops", STORE,
           "        self.give_up()\n        await super().stop()\n", "        await super().stop()\n",
           (f"{OVER}::test_what_is_acknowledged_is_written_before_a_store_stops",)),
)

MUTANTS = (*_MEMBERS, *_UNDONE, *_OVERLAID)

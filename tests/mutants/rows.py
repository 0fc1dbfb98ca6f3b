"""Planted bugs of what keeps rows right: who may write changes, and what is put back."""

from __future__ import annotations

from tests.mutants import Mutant

MEMBERSHIP = "faust_assigner/app/repairs/membership.py"
UNDO = "faust_assigner/app/restore/undo.py"

MEMBER = "tests/integration/app/repairs/test_membership.py"
UNDONE = "tests/unit/app/restore/test_undo.py"

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
    Mutant("the second change of a transaction is what is put back", UNDO,
           "        if key in known:\n            return\n", "",
           (f"{UNDONE}::test_what_was_not_committed_is_put_back",)),
    Mutant("a row that a transaction made stays when it is aborted", UNDO,
           "                batch.delete(key)\n", "                pass\n",
           (f"{UNDONE}::test_what_was_not_committed_is_put_back",)),
    Mutant("a row that held nothing is taken for none", UNDO,
           "_NOTHING if before is None else _HAD + before", "_HAD + before if before else _NOTHING",
           (f"{UNDONE}::test_an_empty_value_is_not_no_value",)),
    Mutant("a deletion is not put back", UNDO,
           "                if any(database is one for one in databases):\n"
           "                    self._write_down(share, partition, key)\n",
           "                pass\n", (f"{UNDONE}::test_what_was_not_committed_is_put_back",)),
    Mutant("numbers of shares are compared as text", UNDO,
           "PREFIX + number.to_bytes(8, \"big\") + key", "PREFIX + b\"%8d\" % (number % 256) + key",
           (f"{UNDONE}::test_the_oldest_of_several_shares_counts",)),
    Mutant("users see what may be put back", UNDO,
           "return (key for key in super()._visible_keys(db) if not key.startswith(PREFIX))",
           "return super()._visible_keys(db)", (f"{UNDONE}::test_what_was_not_committed_is_put_back",)),
    Mutant("what was committed is put back all the same", UNDO,
           "            batch.delete(undo_key(number, key))\n", "            pass\n",
           (f"{UNDONE}::test_what_was_committed_stays",)),
)

MUTANTS = (*_MEMBERS, *_UNDONE)

"""Planted bugs of requests for keys."""

from __future__ import annotations

from tests.mutants import Mutant

ROOM = "faust_assigner/app/reads/"
ROUTING = "tests/integration/app/reads/test_routing.py::test_"
STANDING = "tests/integration/app/reads/test_standing.py::test_"
DECIDE = "tests/unit/app/reads/test_decide.py::test_"
FRESH = "tests/unit/app/reads/test_freshness.py::test_"

MUTANTS = (
    Mutant("a copy of any age answers", ROOM + "decide.py",
           "self.age_s is not None and self.age_s <= bound_s", "self.age_s is not None",
           (ROUTING + "a_table_beside_it_is_vouched_for_by_itself",)),
    Mutant("two workers send a request to each other for ever", ROOM + "decide.py",
           "    if not asked.is_forwarded and owner is not None and owner != own:\n",
           "    if owner is not None and owner != own:\n",
           (DECIDE + "what_was_forwarded_goes_no_further",
            ROUTING + "what_was_forwarded_is_answered_or_refused_here")),
    Mutant("a copy that lacks the last record is taken for whole", ROOM + "freshness.py",
           "if look.end <= reached]", "if look.end <= reached + 1]",
           (FRESH + "a_copy_is_as_old_as_the_last_look_whose_end_it_has_reached",)),
    Mutant("files of a copy that begins anew count for what was in them", ROOM + "freshness.py",
           "        if not passed:\n            return None\n",
           "        if not passed:\n            return self.looks[0].asked_at if self.looks else None\n",
           (FRESH + "a_copy_that_begins_anew_has_reached_nothing",)),
    Mutant("a view reads on when the partition has gone", ROOM + "reading.py",
           "        if not self.standing.is_owner(self.tp):\n", "        if False:\n",
           (ROUTING + "a_partition_that_goes_while_the_view_works_is_not_read",)),
    Mutant("another worker is asked than the one that has the key", ROOM + "router.py",
           "        return said.pop() if len(said) == 1 else own\n", "        return own\n",
           (ROUTING + "a_key_is_placed_as_the_streams_have_it[streams1-key]",)),
    Mutant("a dead owner is a 500", ROOM + "router.py",
           "        except (*UNREACHABLE, SameNode, ServiceUnavailable) as error:\n",
           "        except (SameNode, ServiceUnavailable) as error:\n",
           (ROUTING + "a_dead_owner_is_a_503_with_the_time_to_ask_again",
            ROUTING + "a_dead_owner_is_stood_in_for_by_the_copy_here")),
    Mutant("a change is made in a copy", ROOM + "decide.py",
           "    if not asked.changes_nothing or bound_s <= 0:\n", "    if bound_s <= 0:\n",
           (DECIDE + "what_may_change_something_goes_to_the_owner_only",
            ROUTING + "a_change_goes_to_its_owner_or_nowhere")),
    Mutant("a table that is being restored is read", "faust_assigner/app/cooperative/by_state.py",
           "return self.is_flowing and tp in self._complete and", "return tp in self.active_tps and",
           (STANDING + "a_partition_that_is_being_restored_is_not_read_and_kept_ones_are",
            STANDING + "nothing_is_read_while_everything_stands_still")),
    Mutant("a worker that is expelled answers from old files", ROOM + "standing.py",
           "                    and app.consumer.is_surely_member())\n", "                    )\n",
           (STANDING + "rows_are_an_owners_only_while_it_is_surely_a_member",)),
)

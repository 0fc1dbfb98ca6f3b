"""Planted bugs of the service's edge: who may call, what a consumer may still work on, what is told again."""

from __future__ import annotations

from tests.mutants import Mutant

CLIENT = "faust_assigner/service/client"
SERVER = "faust_assigner/service/server"
HOLDINGS = "tests/unit/service/test_holdings.py"
AUTH = "tests/unit/service/test_auth.py"

MUTANTS = (
    Mutant(
        story="A stopped process wakes and works on what is another's by now",
        file=f"{CLIENT}/holdings.py",
        old="        return now < self.until and (partition",
        new="        return (partition",
        red=(f"{HOLDINGS}::test_nothing_may_be_worked_on_when_the_session_is_over",),
    ),
    Mutant(
        story="A partition under another epoch counts as the one that was held",
        file=f"{CLIENT}/holdings.py",
        old=(
            "        added = tuple(\n"
            "            g\n"
            "            for p, g in owned.items()\n"
            "            if p not in before or before[p].epoch != g.epoch or p in again\n"
            "        )"
        ),
        new="        added = tuple(g for p, g in owned.items() if p not in before or p in again)",
        red=(f"{HOLDINGS}::test_another_epoch_is_another_ownership",),
    ),
    Mutant(
        story="A release that the session's end cut off is never told again, and its handoff hangs",
        file=f"{CLIENT}/client.py",
        old="        self._told = {key: command for key, command in self._told.items() if key[0] is Warm}\n",
        new="",
        red=(
            "tests/unit/service/test_client.py"
            "::test_a_release_that_was_cut_off_by_the_sessions_end_is_told_again",
        ),
    ),
    Mutant(
        story="A lost acknowledgement is not repeated when the service asks again",
        file=f"{CLIENT}/client.py",
        old="            if (acked := self._acked.get(key)) is not None:",
        new="            if (acked := None) is not None:",
        red=(
            "tests/unit/service/test_client.py::test_an_acknowledgement_that_was_lost_is_sent_again",
        ),
    ),
    Mutant(
        story="A caller may act as whom the request's body names",
        file=f"{SERVER}/auth.py",
        old="        if consumer_name not in self.names:",
        new="        if False:",
        red=(
            f"{AUTH}::test_a_caller_acts_only_as_itself",
            f"{AUTH}::test_a_certificate_says_who_calls",
        ),
    ),
    Mutant(
        story="A consumer may drain others",
        file=f"{SERVER}/auth.py",
        old="        if self.names is not None and not self.is_admin:",
        new="        if False:",
        red=(f"{AUTH}::test_a_caller_acts_only_as_itself",),
    ),
    Mutant(
        story="The service listens beyond loopback without asking who calls",
        file=f"{SERVER}/options.py",
        old='        if said["insecure"] or is_loopback(said["bind"][0]):',
        new="        if True:",
        red=(
            "tests/unit/service/test_options.py"
            "::test_encryption_without_authentication_is_not_for_others",
        ),
    ),
    Mutant(
        story="An open connection is a sign of life: a stopped consumer is waited for once more",
        file="faust_assigner/service/serving/sessions.py",
        old="        if stream.beats:\n            self._beats.take",
        new="        if False:\n            self._beats.take",
        red=(
            "tests/unit/service/test_hostile.py"
            "::test_a_consumer_whose_connection_breaks_late_is_not_waited_for_once_more",
        ),
    ),
    Mutant(
        story="A target that takes the call and never answers is waited for for ever",
        file=f"{CLIENT}/client.py",
        old="call_later(patience_s, self._stream.cancel)",
        new="call_later(1e6, self._stream.cancel)",
        red=(
            "tests/unit/service/test_client.py"
            "::test_a_target_that_takes_the_call_and_never_answers_is_left_for_the_next",
        ),
    ),
    Mutant(
        story="The patience does not grow: a service that is slower is asked for ever and never heard",
        file=f"{CLIENT}/client.py",
        old="self._retry.answer_s * 2.0 ** min(attempt, MOST_DOUBLED)",
        new="self._retry.answer_s",
        red=(
            "tests/unit/service/test_client.py"
            "::test_a_service_that_is_slower_than_the_patience_is_reached_all_the_same",
        ),
    ),
    Mutant(
        story="A store that was restored to an older revision is waited for until it has caught up",
        file="faust_assigner/service/mirror.py",
        old="                if self._is_of_another_past(listing, differences, asked):\n",
        new="                if False:\n",
        red=(
            "tests/unit/service/holes/test_holes_leader.py"
            "::test_5_a_store_that_was_restored_to_an_older_revision_is_listed_anew",
        ),
    ),
)

"""Planted bugs of members of groups that consume nothing, and of what plain consumers tell each other."""

from __future__ import annotations

from tests.mutants import Mutant

_MEMBER = "faust_assigner/clients/member.py"
_LINK = "faust_assigner/clients/coordinator_link.py"
_ASSIGNORS = "faust_assigner/clients/assignors.py"
_WORDS = "faust_assigner/clients/words.py"

_AT_MEMBER = "tests/unit/clients/test_member.py::test_"
_AT_ASSIGNORS = "tests/unit/clients/test_assignors.py::test_"
_LIVE = "tests/integration/clients/test_members.py::test_"

MUTANTS = (
    Mutant(
        "a session counts from the answer",
        _MEMBER,
        "                lost_at = asked + self._session_s",
        "                lost_at = clock() + self._session_s + self._interval_s",
        (f"{_AT_MEMBER}silence_counts_as_loss_when_the_session_ends_and_no_later",),
    ),
    Mutant(
        "a question reaches beyond the session",
        _MEMBER,
        "min(self._session_s / 3, lost_at - asked)",
        "self._session_s / 3",
        (f"{_AT_MEMBER}silence_counts_as_loss_when_the_session_ends_and_no_later",),
    ),
    Mutant(
        "nobody beats while work stops",
        _MEMBER,
        "            lost = await self._while_beating(share, _ended(work)) or lost",
        "            await _ended(work)",
        (
            f"{_AT_MEMBER}work_that_takes_its_time_to_stop_is_beaten_for",
            f"{_AT_MEMBER}a_place_lost_while_work_stops_is_known_to_its_end",
        ),
    ),
    Mutant(
        "a place lost while work stops is revoked",
        _MEMBER,
        "            return beats.done()",
        "            return False",
        (f"{_AT_MEMBER}a_place_lost_while_work_stops_is_known_to_its_end",),
    ),
    Mutant(
        "who ends with an error stays in the group",
        _MEMBER,
        "                await self._say_goodbye()\n            raise",
        "                pass\n            raise",
        (f"{_AT_MEMBER}a_member_whose_work_raises_leaves_and_says_so",),
    ),
    Mutant(
        "an error just before a round is forgotten",
        _MEMBER,
        "        if work is not None and not work.cancelled():\n            work.result()",
        "        pass",
        (f"{_AT_MEMBER}an_error_just_before_a_round_is_not_forgotten",),
    ),
    Mutant(
        "who waits for another round is silent",
        _MEMBER,
        "                await self._watch(share, for_s=self._pause(failures))",
        "                await asyncio.sleep(self._pause(failures))",
        (f"{_AT_MEMBER}who_waits_for_another_round_stays_in_the_group",),
    ),
    Mutant(
        "a group that may not be looked for is looked for again",
        _MEMBER,
        "                self._refuse_fatal(problem.errno)\n",
        "",
        (f"{_AT_MEMBER}a_group_that_may_not_be_looked_for_ends_the_member",),
    ),
    Mutant(
        "an answer that explains nothing is asked for again at once",
        _MEMBER,
        "            self._odd += 1",
        "            self._odd = 0",
        (f"{_AT_MEMBER}an_answer_that_explains_nothing_is_said_and_asked_again_ever_later",),
    ),
    Mutant(
        "a goodbye waits behind a parked join",
        _MEMBER,
        "            self._link.hang_up()\n            goodbye",
        "            goodbye",
        (f"{_LIVE}who_stops_while_it_joins_is_in_no_round[embedded]",),
    ),
    Mutant(
        "connections that lead nowhere are kept",
        _LINK,
        "            connection.close()",
        "            pass",
        (f"{_LIVE}a_path_that_leads_nowhere_is_left_for_another",),
    ),
    Mutant(
        "a round after the last",
        _WORDS,
        "    return min(1 + max((word.round for word in words), default=-1), LAST_ROUND)",
        "    return 1 + max((word.round for word in words), default=-1)",
        (f"{_AT_ASSIGNORS}a_member_that_counts_to_the_end_leaves_the_others_answers_readable",),
    ),
    Mutant(
        "a leader that slept dates its round before the others'",
        _WORDS,
        "1 + max((word.round for word in words), default=-1)",
        "1 + min((word.round for word in words), default=-1)",
        (
            f"{_AT_ASSIGNORS}a_word_of_an_older_round_never_wins",
            f"{_AT_ASSIGNORS}each_round_is_dated_one_later_than_all_that_members_have_seen",
        ),
    ),
    Mutant(
        "all rounds are of one date",
        _ASSIGNORS,
        "next_round(one.word for one in joined)",
        "1",
        (
            f"{_AT_ASSIGNORS}a_word_of_an_older_round_never_wins",
            f"{_AT_ASSIGNORS}each_round_is_dated_one_later_than_all_that_members_have_seen",
        ),
    ),
    Mutant(
        "topics that are joined go to two consumers",
        _ASSIGNORS,
        "        return self._together",
        "        return ()",
        (f"{_AT_ASSIGNORS}co_partitioned_topics_meet_on_one_consumer",),
    ),
)

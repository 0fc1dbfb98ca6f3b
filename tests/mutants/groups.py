"""Planted bugs of committed offsets and of the service around the groups."""

from __future__ import annotations

from tests.mutants import Mutant
from tests.mutants.coordinator import bug

_CLASSIC = "faust_assigner/coordinator/classic.py"
_OFFSETS = "faust_assigner/coordinator/offsets.py"
_VIEWS = "faust_assigner/coordinator/classic_views.py"
_SERVICE = "faust_assigner/broker/groups/service.py"
_BOOKS = "faust_assigner/broker/groups/books.py"
_ADMIN = "faust_assigner/broker/api/group_admin.py"
_COMMIT = "faust_assigner/broker/api/group_offsets.py"

_SYNC = "tests/unit/coordinator/test_classic_sync.py::test_"
_BOOK = "tests/unit/coordinator/test_classic_offsets.py::test_"
_DESK = "tests/unit/broker/test_groups.py::test_"
_RECORDS = "tests/unit/broker/test_group_records.py::test_"
_RECORD_STORE = "faust_assigner/broker/storage/group_records.py"

MUTANTS = (
    bug(
        _CLASSIC,
        "a commit of another generation is taken",
        "        if error is Code.NONE and event.generation != self.generation:\n"
        "            error = Code.ILLEGAL_GENERATION\n"
        "        return error\n",
        "        return error\n",
        f"{_SYNC}fenced_commits_get_their_exact_error",
    ),
    bug(
        _CLASSIC,
        "a commit is no sign of life",
        "            self._heard_from(event.member_id)\n        self._out.append(fx.CommitReply",
        "            pass\n        self._out.append(fx.CommitReply",
        f"{_SYNC}a_commit_keeps_the_session_alive",
    ),
    bug(
        _CLASSIC,
        "a member commits what it does not own yet",
        "            error = Code.REBALANCE_IN_PROGRESS\n"
        "        self._out.append(fx.CommitReply(event.token, error))\n",
        "            pass\n        self._out.append(fx.CommitReply(event.token, error))\n",
        f"{_SYNC}a_commit_while_the_leader_assigns_is_told_to_wait",
    ),
    bug(
        _CLASSIC,
        "members of an empty group commit",
        "Code.NONE if event.generation < 0 else known",
        "Code.NONE",
        f"{_SYNC}outsiders_commit_to_an_empty_group",
    ),
    bug(
        _VIEWS,
        "offsets of subscribed topics expire",
        "if read is not None and topic not in read else None",
        "if read is not None else None",
        f"{_BOOK}offsets_of_subscribed_topics_do_not_expire_while_the_group_lives",
    ),
    bug(
        _VIEWS,
        "an empty group's offsets expire by their last commit",
        "max(self.state_since_ms, committed_at_ms)",
        "committed_at_ms",
        f"{_BOOK}offsets_of_an_empty_group_expire_counted_from_when_it_became_empty",
    ),
    bug(
        _OFFSETS,
        "an old client's own retention is ignored",
        "    if entry.expires_at_ms is not None:\n",
        "    if False:\n",
        f"{_BOOK}a_retention_asked_for_by_an_old_client_overrules_the_brokers",
    ),
    bug(
        _VIEWS,
        "offsets expire while a group rebalances",
        "self.subscribed_topics() if self.state is State.STABLE else None",
        "self.subscribed_topics()",
        f"{_BOOK}nothing_expires_while_a_group_rebalances",
    ),
    bug(
        _VIEWS,
        "only the first member's topics count",
        "            topics.update(found)\n",
        "            topics.update(found)\n            break\n",
        f"{_BOOK}topics_of_all_members_count",
    ),
    bug(
        _OFFSETS,
        "the higher offset wins over the later one",
        "        self.entries.update(changes)\n",
        "        for key, entry in changes.items():\n"
        "            if key not in self.entries or entry.offset >= self.entries[key].offset:\n"
        "                self.entries[key] = entry\n",
        f"{_BOOK}a_later_commit_wins_even_with_a_smaller_offset",
    ),
    bug(
        _COMMIT,
        "a fenced commit is stored",
        "    if reply.error is not Code.NONE:\n",
        "    if False:\n",
    ),
    bug(
        _COMMIT,
        "a commit that is not on disk is acknowledged",
        "    return ErrorCode(await _commit(call, request.group_id, changes))\n",
        "    await _commit(call, request.group_id, changes)\n    return ErrorCode.none\n",
    ),
    bug(
        _CLASSIC,
        "a commit that must wait keeps the session alive",
        "        error = self._check_commit(event)  # refused, it does not count as a sign of life\n",
        "        error = self._check_commit(event)\n"
        "        if error is Code.NONE:\n"
        "            self._heard_from(event.member_id)\n",
        f"{_SYNC}a_commit_while_the_leader_assigns_is_no_sign_of_life",
    ),
    bug(
        _BOOKS,
        "offsets hold although they are not on disk",
        "            return Code.NOT_COORDINATOR\n        self._remember(group_id, changes)\n",
        "            self._remember(group_id, changes)\n"
        "            return Code.NOT_COORDINATOR\n"
        "        self._remember(group_id, changes)\n",
        f"{_DESK}a_group_that_cannot_be_written_is_not_acknowledged",
    ),
    bug(
        _BOOKS,
        "offsets are in memory alone",
        "            self._store.write(pairs)\n",
        "            pass\n",
        f"{_DESK}groups_and_offsets_come_back_from_disk",
    ),
    bug(
        _SERVICE,
        "a failed save of a group is taken for a good one",
        'could not be stored: %s", group_id, error)\n            return Code.NOT_COORDINATOR\n',
        'could not be stored: %s", group_id, error)\n            return Code.NONE\n',
        f"{_DESK}a_group_that_cannot_be_written_is_not_acknowledged",
    ),
    bug(
        _SERVICE,
        "offsets of a deleted group come back at the next start",
        "deletes = [*self._close_book(group_id), group_store.group_key(group_id)]",
        "deletes = [group_store.group_key(group_id)]",
        f"{_DESK}a_deleted_group_leaves_no_offsets_on_disk",
    ),
    bug(
        _BOOKS,
        "offsets that were deleted come back at the next start",
        "self._write_quietly([], [*stored, *pending])",
        "self._write_quietly([], pending)",
    ),
    bug(
        _BOOKS,
        "offsets outlive their topic",
        ".commit(changes)\n        for topic in {topic for topic, _ in changes}:\n",
        ".commit(changes)\n        for topic in ():\n",
        f"{_DESK}a_deleted_topic_takes_its_offsets_from_every_group",
    ),
    bug(
        _SERVICE,
        "one alarm is the last",
        "            self._feed(group, event)\n            self._set_alarm(group_id)\n",
        "            self._feed(group, event)\n",
    ),
    bug(
        _SERVICE,
        "an administrator may delete offsets that are being read",
        "        return lambda topic: topics is None or topic in topics\n",
        "        return lambda topic: False\n",
    ),
    bug(
        _VIEWS,
        "assignments that do not hold any more are shown",
        'assignment=m.assignment if settled else b"",',
        "assignment=m.assignment,",
    ),
    bug(
        _ADMIN,
        "a list of groups in one state shows all",
        "(not states or group.state_name.lower() in states) and",
        "",
    ),
    Mutant(
        "a record that could not be written is acknowledged",
        _SERVICE,
        "Saved(save_id, self._save(group_id, records))",
        "Saved(save_id)",
        (f"{_RECORDS}a_join_that_cannot_be_stored_is_refused",),
    ),
    Mutant(
        "a heartbeat hears of a topic later than whoever created it",
        _SERVICE,
        (
            "        if (\n"
            "            isinstance(event, ConsumerGroupHeartbeat)\n"
            "            and self._told.get(group_id) is not self._catalogue()\n"
            "        ):"
        ),
        "        if isinstance(event, ConsumerGroupHeartbeat) and False:",
        (f"{_RECORDS}a_heartbeat_knows_the_topics_of_this_moment",),
    ),
    Mutant(
        "members that left come back at the next start",
        _RECORD_STORE,
        "[key for key, value in last.items() if value is None]",
        "[]",
        (f"{_RECORDS}a_tombstone_deletes_and_the_last_word_counts",),
    ),
    Mutant(
        "records of a later version are taken for known ones",
        _RECORD_STORE,
        '_BY_WORD.get((word, saved.get("v")))',
        "_BY_WORD.get((word, 1))",
        (f"{_RECORDS}a_record_from_the_future_ends_the_start",),
    ),
    Mutant(
        "records of a deleted consumer group come back",
        _SERVICE,
        "[prefix_range(group_records.records_prefix(group_id))]",
        "[]",
        (f"{_RECORDS}a_deleted_consumer_group_leaves_nothing",),
    ),
    Mutant(
        "a refused join leaves a group",
        _SERVICE,
        "        if isinstance(group, ConsumerGroup) and group.is_unproven:\n",
        "        if False:\n",
        (f"{_RECORDS}a_request_that_founds_nothing_leaves_no_group",),
    ),
)

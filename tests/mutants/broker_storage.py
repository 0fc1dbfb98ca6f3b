"""Planted bugs of the broker around its groups: logs and what lies below them."""

from __future__ import annotations

from tests.mutants import Mutant

_LOG = "faust_assigner/broker/storage/log.py"
_BATCH_INDEX = "faust_assigner/broker/storage/batch_index.py"
_CLEANING = "faust_assigner/broker/storage/cleaning.py"
_CLEAN_WRITES = "faust_assigner/broker/storage/clean_writes.py"
_BODIES = "faust_assigner/broker/storage/bodies.py"
_RECORDS = "faust_assigner/broker/storage/records.py"
_PRODUCERS = "faust_assigner/broker/storage/producers.py"
_UNPACKING = "faust_assigner/broker/storage/unpacking.py"
_STORE = "faust_assigner/broker/storage/store.py"
_FLUSHING = "faust_assigner/broker/storage/flushing.py"
_WITNESS = "faust_assigner/broker/storage/witness.py"
_RECOVERY = "faust_assigner/broker/storage/recovery.py"
_GROUP_STORE = "faust_assigner/broker/storage/group_store.py"
_JOURNAL = "faust_assigner/broker/storage/journal.py"

_AT_CLEANING = "tests/unit/broker/test_cleaning.py::test_"
_AT_FLUSHING = "tests/unit/broker/test_flushing.py::test_"
_AT_GROUPS = "tests/unit/broker/test_groups.py::test_"
_AT_LOG = "tests/unit/broker/test_log.py::test_"
_AT_STORE = "tests/unit/broker/test_store.py::test_"
_BY_RECORDS = "tests/integration/broker/apis/test_records.py::test_"
_BY_FULL_DISK = "tests/integration/broker/test_full_disk.py::test_"

MUTANTS = (
    Mutant(
        "compaction removes the latest record of a key",
        _CLEANING,
        "latest.get(key, NONE) <= at",
        "latest.get(key, NONE) < at",
        (f"{_AT_CLEANING}a_reader_of_a_removed_offset_gets_the_next_record",),
    ),
    Mutant(
        "a gap of compaction is taken for a loss at the next start",
        _CLEAN_WRITES,
        "return entry if base <= expected else entry._replace(follows=expected)",
        "return entry",
        (f"{_AT_CLEANING}a_reader_of_a_removed_offset_gets_the_next_record",),
    ),
    Mutant(
        "compaction touches records of an open transaction",
        _CLEANING,
        "stop = min(len(index) - 1, bisect_left(index.bases, log.stable_offset))",
        "stop = len(index) - 1",
        (f"{_AT_CLEANING}nothing_at_or_behind_an_open_transaction_is_touched",),
    ),
    Mutant(
        "a tombstone goes before its retention is over",
        _CLEANING,
        "        if NONE < entry.horizon_ms <= self.now_ms:\n",
        "        if NONE < entry.horizon_ms:\n",
        (f"{_AT_CLEANING}a_tombstone_stays_for_its_retention_and_goes_then",),
    ),
    Mutant(
        "compaction takes a producer's sequence away",
        _CLEANING,
        "is_last = self.last_batches.get(batch.producer_id) == base",
        "is_last = False",
        (f"{_AT_CLEANING}the_last_batch_of_a_known_producer_stays_without_records",),
    ),
    Mutant(
        "a marker that is gone leaves the note of its aborted transaction",
        _CLEAN_WRITES,
        "    deletes += map(log.ended_key, markers)\n",
        "",
        (f"{_AT_CLEANING}aborted_records_go_at_once_and_their_marker_after_its_retention",),
    ),
    Mutant(
        "a refused write moves the end",
        _LOG,
        "        puts = self._places(batch, data, base, now_ms)\n        opens",
        "        puts = self._places(batch, data, base, now_ms)\n"
        "        self.end_offset += batch.last_delta + 1\n        opens",
        (f"{_AT_LOG}a_failed_write_changes_nothing",),
    ),
    Mutant(
        "a reader of a large batch gets nothing",
        _LOG,
        "            if not at_least_one:\n                return None\n            stop",
        "            return None\n            stop",
        (f"{_AT_LOG}byte_limits_count_whole_batches_and_the_first_comes_in_any_case",),
    ),
    Mutant(
        "a batch half trimmed is gone",
        _BATCH_INDEX,
        """or later.\"\"\"
        return bisect_right(self.nexts, offset)""",
        """or later.\"\"\"
        return bisect_right(self.nexts, offset) + 1 if self.nexts else 0""",
        (f"{_AT_LOG}a_trimmed_log_starts_later_and_remembers_it",),
    ),
    Mutant(
        "waiting readers are not woken",
        _LOG,
        "            )\n        self._wake()\n        return base",
        "            )\n        return base",
        (f"{_BY_RECORDS}a_long_poll_ends_with_data_or_with_time",),
    ),
    Mutant(
        "peaks of trimmed batches answer times",
        _BATCH_INDEX,
        "                del column[:count]\n            self._peaks = None\n",
        "                del column[:count]\n",
        (f"{_AT_STORE}a_time_is_found_in_a_log_that_is_not_in_order_of_time",),
    ),
    Mutant(
        "times in an unordered log are found too late",
        _BATCH_INDEX,
        'self._peaks = array("q", accumulate(self._times, max))',
        'self._peaks = array("q", self._times)',
        (f"{_AT_STORE}a_time_is_found_in_a_log_that_is_not_in_order_of_time",),
    ),
    Mutant(
        "a start after trimming begins at 0",
        _LOG,
        "            (self.start_offset,) = OFFSET.unpack(start)\n",
        "            pass\n",
        (f"{_AT_LOG}a_trimmed_log_starts_later_and_remembers_it",),
    ),
    Mutant(
        "producers are forgotten at a start",
        _LOG,
        "        elif producer_id >= 0:\n",
        "        elif False:\n",
        (f"{_AT_LOG}a_reopened_log_is_the_log_that_was_written",),
    ),
    Mutant(
        "retention keeps one batch too many over its size",
        _BATCH_INDEX,
        "if surplus > 0 else 0)",
        "if surplus > 0 else 0) - 1",
        (f"{_AT_LOG}retention_by_age_and_by_size_deletes_from_the_front",),
    ),
    Mutant(
        "a wrong checksum is taken",
        _RECORDS,
        "    if crc32c(memoryview(data)[CRC_FROM:]) != crc:",
        "    if False:",
        (f"{_AT_LOG}every_flipped_bit_under_the_checksum_is_noticed",),
    ),
    Mutant(
        "a batch with another count is taken",
        _RECORDS,
        "    if count < 1 or last_delta != count - 1:",
        "    if count < 1:",
        (f"{_AT_LOG}a_batch_that_is_not_what_it_claims_is_refused",),
    ),
    Mutant(
        "the header's greatest time stands whatever is inside",
        _RECORDS,
        "    if newest != batch.max_timestamp or batch",
        "    if batch",
        (f"{_AT_LOG}the_greatest_time_in_the_header_is_made_true",),
    ),
    Mutant(
        "only the first of two batches is stored, silently",
        _RECORDS,
        "    if len(data) > size and _batch_size(data, size) is not None:",
        "    if False:",
        (f"{_AT_STORE}two_batches_in_one_are_refused_and_bytes_behind_one_are_cut",),
    ),
    Mutant(
        "records without a key go into a compacted topic",
        _RECORDS,
        "    if rules.keys and contents.without_key.size:",
        "    if False:",
        (f"{_AT_LOG}a_compacted_topic_takes_no_record_without_a_key",),
    ),
    Mutant(
        "bytes behind the last record are stored",
        _BODIES,
        "    if position != len(body):",
        "    if False:",
        (f"{_AT_STORE}bytes_behind_the_last_record_are_refused",),
    ),
    Mutant(
        "sequences do not wrap",
        _PRODUCERS,
        "    return (sequence + by) % (MAX_SEQUENCE + 1)",
        "    return sequence + by",
        (f"{_AT_LOG}the_next_batch_is_taken_also_across_the_wrap",),
    ),
    Mutant(
        "a zombie's epoch is taken",
        _PRODUCERS,
        "        if batch.producer_epoch < state.epoch:\n"
        "            return Verdict(ErrorCode.invalid_producer_epoch)\n",
        "",
        (f"{_AT_LOG}an_older_epoch_is_fenced_and_a_newer_one_starts_at_zero",),
    ),
    Mutant(
        "a new epoch may begin anywhere",
        _PRODUCERS,
        "            fresh = batch.base_sequence == 0",
        "            fresh = True",
        (f"{_AT_LOG}an_older_epoch_is_fenced_and_a_newer_one_starts_at_zero",),
    ),
    Mutant(
        "the latest producer is forgotten",
        _PRODUCERS,
        "del self._states[next(iter(self._states))]",
        "del self._states[next(reversed(self._states))]",
        (f"{_AT_STORE}of_too_many_producers_the_longest_idle_is_forgotten",),
    ),
    Mutant(
        "a gzip bomb is unpacked",
        _UNPACKING,
        "        if limit < 0:\n            raise TooMuch\n",
        "",
        (f"{_AT_STORE}a_gzip_body_of_several_members_is_read_to_its_end",),
    ),
    Mutant(
        "only the first gzip member is read",
        _UNPACKING,
        "        if not body.startswith(GZIP_MEMBER):",
        "        if True:",
        (f"{_AT_STORE}a_gzip_body_of_several_members_is_read_to_its_end",),
    ),
    Mutant(
        "snappy of Java's streams is unreadable",
        _UNPACKING,
        "    if not body.startswith(XERIAL):",
        "    if True:",
        (f"{_AT_STORE}snappy_as_javas_streams_write_it_is_read",),
    ),
    Mutant(
        "the prefix of a range that ends in 0xff reaches too far",
        _STORE,
        '    head = prefix.rstrip(b"\\xff")',
        "    head = prefix",
        (f"{_AT_STORE}a_range_of_a_prefix_ends_before_the_next_one",),
    ),
    Mutant(
        "deleted batches are read from memory",
        _STORE,
        (
            "            self._recent.drop(\n"
            "                key\n"
            "            )  # a range leaves its batches there until newer ones push them out"
        ),
        "            pass",
        (f"{_AT_STORE}a_batch_that_was_deleted_is_not_read_from_memory",),
    ),
    Mutant(
        "a full disk is written to the brim",
        _STORE,
        "        if self._is_low:",
        "        if False:",
        (f"{_BY_FULL_DISK}deleting_works_on_a_full_disk_and_gives_its_space_back",),
    ),
    Mutant(
        "a store that broke stays broken",
        _STORE,
        "        if self._is_broken:\n            self._reopen()\n",
        "",
        (f"{_BY_FULL_DISK}a_store_that_ran_out_of_space_is_usable_once_there_is_some",),
    ),
    Mutant(
        "memory of recent batches grows without end",
        _STORE,
        "        while self._size > self._limit:",
        "        while False:",
        (f"{_AT_STORE}recent_batches_keep_to_their_bytes_and_the_oldest_go",),
    ),
    Mutant(
        "who comes late shares a wait that began before",
        _FLUSHING,
        "        if self._next is None:",
        "        if self._next is None and self._under_way is not None and not self._under_way.done():\n"
        "            self._next = self._under_way\n"
        "        if self._next is None:",
        (f"{_AT_FLUSHING}those_who_come_while_the_disk_is_busy_share_the_next_wait",),
    ),
    Mutant(
        "what is flushed is not told to the witness",
        _FLUSHING,
        "        self._store.note_flushed(await self._aside(self._store.flush))",
        "        await self._aside(self._store.flush)",
        (f"{_AT_FLUSHING}what_the_disk_has_is_told_to_the_witness",),
    ),
    Mutant(
        "a kill is taken for a power loss",
        _WITNESS,
        "self.same_boot = boot == self._boot != UNKNOWN_BOOT",
        "self.same_boot = False",
        (f"{_AT_STORE}writes_and_ends_are_what_the_last_run_said",),
    ),
    Mutant(
        "a torn head is believed",
        _WITNESS,
        "            sound = magic == MAGIC and crc32c(self._map[start : start + HEAD.size - 4]) == "
        "checksum\n",
        "            sound = magic == MAGIC\n",
        (f"{_AT_STORE}a_head_that_was_torn_by_a_kill_is_not_believed",),
    ),
    Mutant(
        "ends beyond the first 64 KiB are not kept",
        _WITNESS,
        "            try:\n                self._grow()\n",
        "            return None\n            try:\n                self._grow()\n",
        (f"{_AT_STORE}writes_and_ends_are_what_the_last_run_said",),
    ),
    Mutant(
        "a partition that ends early is not noticed",
        _RECOVERY,
        "        if end > log.end_offset:",
        "        if False:",
        (f"{_AT_STORE}a_partition_that_ends_before_the_witness_saw_it_end_is_a_loss",),
    ),
    Mutant(
        "damage is accepted without being asked to",
        _RECOVERY,
        '    if not settings.log_recovery_accept_loss:\n        raise StoreDamaged(f"{message}.',
        '    if False:\n        raise StoreDamaged(f"{message}.',
        (f"{_AT_STORE}a_partition_that_ends_before_the_witness_saw_it_end_is_a_loss",),
    ),
    Mutant(
        "an empty store after a loss is a new one",
        _RECOVERY,
        "    if lost and not settings",
        "    if False and not settings",
        (f"{_AT_STORE}an_empty_store_that_lacks_writes_is_not_taken_for_a_new_one",),
    ),
    Mutant(
        "groups a and ab share offsets",
        _GROUP_STORE,
        '    return b"o" + _text(group_id)',
        '    return b"o" + group_id.encode()',
        (f"{_AT_GROUPS}offsets_of_groups_with_similar_names_stay_apart",),
    ),
    Mutant(
        "notes beside offsets are lost",
        _GROUP_STORE,
        "value[OFFSET.size :].decode()",
        '""',
        (f"{_AT_GROUPS}groups_and_offsets_come_back_from_disk",),
    ),
    Mutant(
        "assignments count for nothing in a record's size",
        _GROUP_STORE,
        "        + len(m.assignment)\n",
        "",
        (f"{_AT_GROUPS}a_group_record_above_the_message_limit_fails_its_sync_as_in_kafka",),
    ),
    Mutant(
        "a flood of frames floods the log",
        _JOURNAL,
        "        if self._said[kind] <= LINES_PER_INTERVAL:",
        "        if True:",
        (f"{_AT_STORE}what_was_left_out_of_the_log_is_told_after_a_minute",),
    ),
    Mutant(
        "what was left out is never told",
        _JOURNAL,
        "        if left_out > 0:",
        "        if False:",
        (f"{_AT_STORE}what_was_left_out_of_the_log_is_told_after_a_minute",),
    ),
    Mutant(
        "after a flush that failed the store goes on writing to what broke",
        _STORE,
        "            self._is_broken = True\n            raise\n        return writes",
        "            raise\n        return writes",
        (f"{_AT_FLUSHING}a_disk_that_fails_to_flush_breaks_the_store_until_it_is_opened_again",),
    ),
    Mutant(
        "every batch is read record by record in Python",
        _BODIES,
        "            if stop - first < FEW:",
        "            if True:",
        ("tests/unit/broker/test_bodies.py::test_most_records_are_not_read_one_by_one",),
    ),
)

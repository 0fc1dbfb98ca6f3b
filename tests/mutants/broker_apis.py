"""Planted bugs of the broker around its groups: what each API answers."""

from __future__ import annotations

from tests.mutants import Mutant

_PRODUCE = "faust_assigner/broker/api/produce.py"
_FETCH = "faust_assigner/broker/api/fetch.py"
_LIST_OFFSETS = "faust_assigner/broker/api/list_offsets.py"
_METADATA = "faust_assigner/broker/api/metadata.py"
_GROUP_OFFSETS = "faust_assigner/broker/api/group_offsets.py"
_MEMBERSHIP = "faust_assigner/broker/api/membership.py"
_TOPIC_ADMIN = "faust_assigner/broker/api/topic_admin.py"
_CLUSTER = "faust_assigner/broker/api/cluster.py"
_CONSUMER_GROUPS = "faust_assigner/broker/api/consumer_groups.py"
_GROUP_ADMIN = "faust_assigner/broker/api/group_admin.py"
_REFUSALS = "faust_assigner/broker/api/refusals.py"
_VERSIONS = "faust_assigner/broker/api/versions.py"
_CALL = "faust_assigner/broker/api/call.py"

_AT_CONNECTION = "tests/unit/broker/test_connection.py::test_"
_AT_REQUESTS = "tests/unit/broker/test_requests.py::test_"
_AT_FLUSHING = "tests/unit/broker/test_flushing.py::test_"
_BY_GROUPS = "tests/integration/broker/apis/test_groups.py::test_"
_BY_RECORDS = "tests/integration/broker/apis/test_records.py::test_"
_BY_TOPICS = "tests/integration/broker/apis/test_topics.py::test_"
_BY_LIMITS = "tests/integration/broker/test_limits.py::test_"
_BY_REFUSALS = "tests/integration/broker/test_refusals.py::test_"

MUTANTS = (
    Mutant(
        "a batch is appended twice when it comes twice",
        _PRODUCE,
        "        if base is None:\n            base = log",
        "        if True:\n            base = log",
        (f"{_BY_RECORDS}an_idempotent_retry_is_acknowledged_with_its_first_offset",),
    ),
    Mutant(
        "a repeated batch does not wait for the disk",
        _PRODUCE,
        "        # A batch that comes again may be one whose wait for the disk failed.\n"
        "        await",
        "        # A batch that comes again may be one whose wait for the disk failed.\n"
        "        if verdict.duplicate_of is None:\n"
        "            await",
        (f"{_AT_FLUSHING}a_record_whose_wait_failed_is_refused_and_its_retry_waits_again",),
    ),
    Mutant(
        "beside a transactional batch without a transactional id others are stored",
        _PRODUCE,
        "                if is_nameless\n",
        "                if is_nameless and records.claims_transaction(bytes(part.records))\n",
        (f"{_AT_REQUESTS}a_transactional_batch_without_a_transactional_id_is_refused",),
    ),
    Mutant(
        "the first of several batches for a partition counts",
        _PRODUCE,
        "        asked.setdefault(key, {}).update((part.index, part) for part in topic.partition_data)",
        "        for part in topic.partition_data:\n"
        "            asked.setdefault(key, {}).setdefault(part.index, part)",
        (f"{_AT_REQUESTS}of_several_batches_for_a_partition_the_last_counts",),
    ),
    Mutant(
        "max.message.bytes is not looked at",
        _PRODUCE,
        "    if len(data) > max_bytes:",
        "    if False:",
        (f"{_BY_RECORDS}bad_batches_get_kafkas_error_and_append_nothing",),
    ),
    Mutant(
        "a topic deleted during the check is written to",
        _PRODUCE,
        "    if log.deleted:\n",
        "    if False:\n",
        (f"{_AT_REQUESTS}a_topic_that_is_deleted_while_a_batch_is_checked_takes_nothing",),
    ),
    Mutant(
        "a reader waits for more than there will be",
        _FETCH,
        "    if sound and wait_ms > 0 and",
        "    if wants and wait_ms > 0 and",
        (f"{_AT_REQUESTS}a_reader_with_a_mistake_is_answered_at_once",),
    ),
    Mutant(
        "a reader in the future waits for ever",
        _FETCH,
        "    if not log.start_offset <= part.fetch_offset <= log.end_offset:",
        "    if not log.start_offset <= part.fetch_offset:",
        (f"{_BY_RECORDS}fetch_outside_the_log_is_out_of_range",),
    ),
    Mutant(
        "each partition may fill the answer",
        _FETCH,
        "                left -= reading.size\n",
        "",
        (f"{_AT_REQUESTS}an_answer_has_so_many_bytes_whatever_its_partitions_hold",),
    ),
    Mutant(
        "an old reader gets zstd",
        _FETCH,
        "    elif call.version < ZSTD_SINCE and",
        "    elif False and",
        (f"{_BY_RECORDS}zstd_is_kept_from_readers_that_cannot_unpack_it",),
    ),
    Mutant(
        "waiters pile up",
        _FETCH,
        "                want.log.waiters.pop(waiter, None)",
        "                pass",
        (f"{_AT_REQUESTS}a_reader_that_waited_is_forgotten",),
    ),
    Mutant(
        "the latest offset is the last record's",
        _LIST_OFFSETS,
        "        return end, UNKNOWN",
        "        return max(end - 1, 0), UNKNOWN",
        (f"{_BY_RECORDS}list_offsets_knows_the_ends_and_the_newest",),
    ),
    Mutant(
        "a time inside a trimmed batch points before the log",
        _LIST_OFFSETS,
        "    return max(found[0], log.start_offset), found[1]",
        "    return found[0], found[1]",
        (f"{_AT_REQUESTS}a_time_inside_a_batch_that_was_trimmed_is_where_the_log_begins",),
    ),
    Mutant(
        "a partition named twice is answered as if once",
        _LIST_OFFSETS,
        "    if len(same) > 1:",
        "    if False:",
        (f"{_AT_REQUESTS}a_partition_named_twice_is_an_invalid_request",),
    ),
    Mutant(
        "an empty list means all topics",
        _METADATA,
        "(request.topics or call.version > 0)",
        "request.topics",
        (f"{_BY_TOPICS}metadata_by_id_and_of_all_topics",),
    ),
    Mutant(
        "topics are made although the client forbids it",
        _METADATA,
        "    if wanted and may_create and node",
        "    if wanted and node",
        (f"{_BY_TOPICS}metadata_creates_topics_only_where_asked_and_allowed",),
    ),
    Mutant(
        "a commit to an unknown partition is stored",
        _GROUP_OFFSETS,
        "            if topic is None or not 0 <= part.partition_index < len(topic.partitions):",
        "            if topic is None:",
        (f"{_BY_GROUPS}a_commit_is_refused_partition_by_partition",),
    ),
    Mutant(
        "a note of any length is kept",
        _GROUP_OFFSETS,
        '            elif len(note.encode("utf-16-le")) > 2 * longest:',
        "            elif False:",
        (f"{_BY_GROUPS}a_commit_is_refused_partition_by_partition",),
    ),
    Mutant(
        "offsets of a topic that members read are deleted",
        _GROUP_OFFSETS,
        "        in_use = is_read(wanted.name)",
        "        in_use = False",
        (f"{_BY_GROUPS}offsets_in_use_are_not_deleted",),
    ),
    Mutant(
        "a client without a join timeout has none",
        _MEMBERSHIP,
        "if call.version >= 1 else session_ms",
        "if call.version >= 1 else 0",
        (f"{_AT_REQUESTS}before_version_1_a_join_may_take_as_long_as_a_session",),
    ),
    Mutant(
        "answers to members with long names are kept",
        _CONSUMER_GROUPS,
        "        made = _calm if len(reply.member_id) <= KEPT_ID_CHARS else _calm.__wrapped__",
        "        made = _calm",
        (f"{_AT_REQUESTS}answers_to_members_with_long_names_are_not_kept",),
    ),
    Mutant(
        "old clients learn of no error when they leave",
        _MEMBERSHIP,
        "        if call.version < 3 and error is Code.NONE and reply.results:",
        "        if False:",
        (f"{_AT_REQUESTS}before_version_3_a_leaver_learns_of_its_error_at_the_top",),
    ),
    Mutant(
        "a topic created twice in one request is created",
        _TOPIC_ADMIN,
        (
            "    def create(wanted: Any) -> Values:\n"
            "        if names[wanted.name] > 1:\n"
            "            raise Refused(\n"
            '                ErrorCode.invalid_request, f"topic {wanted.name!r} appears more than once"\n'
            "            )"
        ),
        "    def create(wanted: Any) -> Values:",
        (f"{_BY_TOPICS}create_topics_validates_each_topic_for_itself",),
    ),
    Mutant(
        "records beyond the end may be deleted",
        _TOPIC_ADMIN,
        "    if not 0 <= target <= log.end_offset:",
        "    if not 0 <= target:",
        (f"{_AT_REQUESTS}records_that_are_not_there_yet_are_not_deleted",),
    ),
    Mutant(
        "offsets outlive a deleted topic",
        _TOPIC_ADMIN,
        '            for _ in call.node.groups.topic_deleted(answer["name"]):',
        "            for _ in ():",
        (f"{_BY_GROUPS}deleting_a_topic_deletes_what_groups_committed_for_it",),
    ),
    Mutant(
        "replicas on brokers that are not there",
        _TOPIC_ADMIN,
        "    if any(tuple(a.broker_ids) != (me,) for a in assignments):",
        "    if False:",
        (f"{_BY_TOPICS}create_topics_validates_each_topic_for_itself",),
    ),
    Mutant(
        "an appended value comes twice",
        _CLUSTER,
        "        parts += [p for p in given if p not in parts]",
        "        parts += given",
        (f"{_AT_REQUESTS}lists_in_settings_are_edited_and_a_validated_change_is_not_made",),
    ),
    Mutant(
        "a validated change is made",
        _CLUSTER,
        "topic, changed, validate_only=validate_only)",
        "topic, changed)",
        (f"{_AT_REQUESTS}lists_in_settings_are_edited_and_a_validated_change_is_not_made",),
    ),
    Mutant(
        "a topic's own setting is called a default",
        _CLUSTER,
        "DYNAMIC_TOPIC if name in topic.configs else CLUSTER_WIDE",
        "CLUSTER_WIDE",
        (f"{_AT_REQUESTS}lists_in_settings_are_edited_and_a_validated_change_is_not_made",),
    ),
    Mutant(
        "a request for all configs leaves those it does not name",
        _CLUSTER,
        "    return {config.name: config.value for",
        "    return dict(configs) | {config.name: config.value for",
        (f"{_AT_REQUESTS}configs_are_replaced_as_a_whole_by_the_older_request",),
    ),
    Mutant(
        "a config without a value is taken",
        _CLUSTER,
        "    _refuse_nulls(resource.configs)\n",
        "    pass\n",
        (f"{_AT_REQUESTS}configs_are_replaced_as_a_whole_by_the_older_request",),
    ),
    Mutant(
        "a group deleted twice is answered twice",
        _GROUP_ADMIN,
        "dict.fromkeys(request.groups_names)",
        "request.groups_names",
        (f"{_AT_REQUESTS}a_group_that_is_named_twice_is_deleted_once",),
    ),
    Mutant(
        "a refused produce names no partition",
        _REFUSALS,
        '            _numbered("partition_data", "partition_responses", "index"),',
        '            _numbered("partition_data", "partition_responses", "nothing"),',
        (f"{_AT_REQUESTS}a_fault_in_a_produce_names_each_partition_it_was_asked_for",),
    ),
    Mutant(
        "a null list is refused without an element",
        _REFUSALS,
        "asked: Iterable[Any] = (None,) if parent is None",
        "asked: Iterable[Any] = () if parent is None",
        (f"{_BY_REFUSALS}null_where_a_list_belongs_is_an_invalid_request",),
    ),
    Mutant(
        "a client from the future is told of success",
        _VERSIONS,
        '{"error_code": ErrorCode.unsupported_version, "api_keys"',
        '{"error_code": ErrorCode.none, "api_keys"',
        (f"{_BY_LIMITS}an_unknown_version_of_api_versions_gets_version_0_with_error_35",),
    ),
    Mutant(
        "a cached answer keeps its first correlation id",
        _CALL,
        "        return self.frame[:4] + correlation_id + self.frame[8:]",
        "        return self.frame",
        (f"{_AT_CONNECTION}answers_of_a_burst_keep_their_order_and_their_names",),
    ),
)

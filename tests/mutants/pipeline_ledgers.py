"""Planted bugs of the pipeline: reading ledgers, snapshots, weights."""

from __future__ import annotations

from tests.mutants import Mutant

_CURRENT = "faust_assigner/pipeline/ledgers/current.py"
_FILES = "faust_assigner/pipeline/ledgers/files.py"
_PARSE = "faust_assigner/pipeline/ledgers/parse.py"
_PERIOD = "faust_assigner/pipeline/ledgers/period.py"
_REFUSALS = "faust_assigner/pipeline/ledgers/refusals.py"
_ROWS = "faust_assigner/pipeline/ledgers/rows.py"
_SOURCES = "faust_assigner/pipeline/ledgers/sources.py"
_TOPICS = "faust_assigner/pipeline/ledgers/topics.py"
_SPANS = "faust_assigner/pipeline/snapshots/spans.py"
_RUN = "faust_assigner/pipeline/snapshots/run.py"
_SNAPSHOT_JOB = "faust_assigner/pipeline/snapshots/job.py"
_RATES = "faust_assigner/pipeline/weights/rates.py"
_PUBLISH = "faust_assigner/pipeline/weights/publish.py"
_WEIGHTS_JOB = "faust_assigner/pipeline/weights/job.py"
_SPARK_WEIGHTS = "faust_assigner/pipeline/weights/transforms.py"

_AT_HERE = "tests/unit/pipeline/history/test_here.py::test_"
_AT_PERIOD = "tests/unit/pipeline/ledgers/test_period.py::test_"
_AT_REFUSALS = "tests/unit/pipeline/ledgers/test_refusals.py::test_"
_AT_SOURCES = "tests/unit/pipeline/ledgers/test_sources.py::test_"
_AT_SNAPSHOTS = "tests/unit/pipeline/snapshots/test_job.py::test_"
_AT_RATES = "tests/unit/pipeline/weights/test_rates.py::test_"
_AT_PUBLISH = "tests/unit/pipeline/weights/test_publish.py::test_"
_LEARNT = "tests/integration/spark/test_weights_spark.py::test_"

MUTANTS = (
    Mutant(
        "the oldest decision is the current one",
        _CURRENT,
        "if known is None or _age(values) > _age(known):",
        "if known is None or _age(values) < _age(known):",
        (f"{_AT_REFUSALS}the_newest_decision_is_the_current_one_and_its_rows_alone_count",),
    ),
    Mutant(
        "rows of other decisions count",
        _CURRENT,
        'return decision is not None and decision["decision_id"] == assignment["decision_id"]',
        "return decision is not None",
        (f"{_AT_REFUSALS}the_newest_decision_is_the_current_one_and_its_rows_alone_count",),
    ),
    Mutant(
        "members lose their instance ids",
        _CURRENT,
        '                instance_id=member.get("instance_id"),\n',
        "",
        (f"{_AT_HERE}the_page_tells_each_rebalance_and_who_owns_what",),
    ),
    Mutant(
        "a line across a chunk's edge is read twice",
        _FILES,
        "        for line, length in _split(stream):\n"
        "            if position >= chunk.end:\n"
        "                return\n"
        "            yield position",
        "        for line, length in _split(stream):\n"
        "            if position > chunk.end:\n"
        "                return\n"
        "            yield position",
        (f"{_AT_SOURCES}chunks_of_any_size_give_the_files_lines",),
    ),
    Mutant(
        "a chunk that begins at a line's start skips it",
        _FILES,
        "stream.seek(chunk.start - 1)\n            position = chunk.start - 1 + _skip_line(stream)",
        "stream.seek(chunk.start)\n            position = chunk.start + _skip_line(stream)",
        (f"{_AT_SOURCES}chunks_of_any_size_give_the_files_lines",),
    ),
    Mutant(
        "a packed file is cut",
        _FILES,
        "    if is_packed(name):\n        return [Chunk(name, 0, end, inode)] if end else []\n",
        "",
        (f"{_AT_SOURCES}packed_file_gives_its_lines",),
    ),
    Mutant(
        "a link and its target are two files",
        _FILES,
        "    return os.path.realpath(name) if _is_local(fs) else name",
        "    return name",
        (f"{_AT_SOURCES}file_reached_in_many_ways_is_found_once",),
    ),
    Mutant(
        "a zst file is passed over in silence",
        _FILES,
        '        if LEDGER_NAME.search(entry["name"]) or _PACKED_OTHERWISE.search(entry["name"]):',
        '        if LEDGER_NAME.search(entry["name"]):',
        (f"{_AT_SOURCES}packing_that_is_not_read_is_an_error_and_no_silence",),
    ),
    Mutant(
        "a long line fills the memory",
        _FILES,
        "    room = MAX_LINE_BYTES + 1 - length\n",
        "    room = 2**62\n",
        (f"{_AT_SOURCES}long_line_is_cut_and_the_next_is_whole",),
    ),
    Mutant(
        "a torn packed file ends the job",
        _FILES,
        "    except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:",
        "    except MemoryError as error:",
        (f"{_AT_SOURCES}torn_packed_file_gives_the_lines_before_and_one_refusal",),
    ),
    Mutant(
        "a half-written line is never read whole",
        _FILES,
        "                return start + found + 1\n            high",
        "                return size\n            high",
        (f"{_AT_SOURCES}open_line_is_found_from_the_end",),
    ),
    Mutant(
        "the last line without newline is lost",
        _FILES,
        '    if length:\n        yield b"".join(held), length',
        '    if False:\n        yield b"".join(held), length',
        (f"{_AT_SOURCES}packed_file_gives_its_lines",),
    ),
    Mutant(
        "rows stand at other lines' places",
        _PARSE,
        "            at.append(len(self.places))\n            rows.append",
        "            at.append(max(len(self.places) - 1, 0))\n            rows.append",
        (f"{_AT_REFUSALS}each_row_stands_at_its_own_lines_place",),
    ),
    Mutant(
        "a tombstone in a topic ends the job",
        _PARSE,
        'value or b""',
        "value",
        (f"{_AT_REFUSALS}each_row_stands_at_its_own_lines_place",),
    ),
    Mutant(
        "what a damaged file held before is lost",
        _PARSE,
        "            batch.refuse((chunk.name, chunk.start, error.position, lines), str(error))\n",
        "            raise\n",
        (f"{_AT_SOURCES}torn_packed_file_gives_the_lines_before_and_one_refusal",),
    ),
    Mutant(
        "--until takes the moment itself",
        _PERIOD,
        "            self.until is None or moment < self.until",
        "            self.until is None or moment <= self.until",
        (f"{_AT_PERIOD}a_period_begins_with_its_first_moment_and_ends_before_its_last",),
    ),
    Mutant(
        "files of the last hour before are not opened",
        _PERIOD,
        "changed < self.since - SLACK:",
        "changed < self.since + SLACK:",
        (f"{_AT_PERIOD}files_outside_are_not_read_and_rows_outside_are_left_out",),
    ),
    Mutant(
        "assignments of earlier decisions count",
        _PERIOD,
        '                (row.values["group_id"], row.values["decision_id"]) in decisions',
        '                (row.values["group_id"], row.values["decision_id"]) in decisions or True',
        (f"{_AT_PERIOD}files_outside_are_not_read_and_rows_outside_are_left_out",),
    ),
    Mutant(
        "a period that ends before it begins is taken",
        _PERIOD,
        "found.since >= found.until:",
        "False:",
        (f"{_AT_PERIOD}what_is_no_period_is_said",),
    ),
    Mutant(
        "a share counts refused lines alone",
        _REFUSALS,
        "int(self.share * (refused.accepted + refused.lines))",
        "int(self.share * refused.lines)",
        (f"{_AT_REFUSALS}a_share_is_of_all_lines",),
    ),
    Mutant(
        "an empty ledger replaces a good history",
        _REFUSALS,
        "    if wanted or replaces or refused.lines:",
        "    if wanted or refused.lines:",
        (f"{_AT_REFUSALS}an_empty_ledger_replaces_nothing_good",),
    ),
    Mutant(
        "all refused lines are kept",
        _REFUSALS,
        "        if len(self.kept) < self.keep:",
        "        if True:",
        (f"{_AT_REFUSALS}only_so_many_refused_lines_are_kept_and_all_are_counted",),
    ),
    Mutant(
        "lines are numbered from 0",
        _ROWS,
        "        for _, line in read_lines(Chunk(file.name, 0, file.size, file.inode)):\n"
        "            number += 1\n"
        "            found = parse(line)",
        "        for number, (_, line) in enumerate(read_lines(Chunk(file.name, 0, file.size, file.inode))):\n"
        "            found = parse(line)",
        (f"{_AT_REFUSALS}what_is_read_here_is_held_to_the_tolerance",),
    ),
    Mutant(
        "what was refused does not count against the tolerance",
        _ROWS,
        "    tolerance.check(refused)\n    return (period",
        "    return (period",
        (f"{_AT_REFUSALS}what_is_read_here_is_held_to_the_tolerance",),
    ),
    Mutant(
        "a rotated file is taken for one that grew",
        _SOURCES,
        "        same = _digest(read_head(file.name, known.head_bytes)) == known.head",
        "        same = True",
        (f"{_AT_SOURCES}offsets_follow_growth_torn_lines_and_rotation",),
    ),
    Mutant(
        "a half-written line is not read again",
        _SOURCES,
        "                chunks += cut(name, before.at, now.size)",
        "                chunks += cut(name, before.size, now.size)",
        (f"{_AT_SOURCES}offsets_follow_growth_torn_lines_and_rotation",),
    ),
    Mutant(
        "a mount that is away makes the stream begin anew",
        _SOURCES,
        "        kept = {} if all_answered else start",
        "        kept = {}",
        (f"{_AT_SOURCES}offset_forgets_nothing_while_a_path_does_not_answer",),
    ),
    Mutant(
        "files that are gone stay in the offset for ever",
        _SOURCES,
        "        kept = {} if all_answered else start",
        "        kept = start",
        (f"{_AT_SOURCES}offset_forgets_files_that_are_gone_once_there_is_news",),
    ),
    Mutant(
        "a topic's password is told with the options",
        "faust_assigner/pipeline/ledgers/topic_source.py",
        '"properties_secret": json',
        '"properties": json',
        (f"{_AT_REFUSALS}a_clusters_secrets_travel_under_a_name_that_is_not_shown",),
    ),
    Mutant(
        "a stream steps back behind what it read",
        _TOPICS,
        "max(end, known.get(number, 0))",
        "end",
        (f"{_AT_REFUSALS}a_stream_never_steps_back_behind_what_it_read",),
    ),
    Mutant(
        "records that come twice are taken twice",
        _SPANS,
        "        if not self._next <= first_offset <= last_offset < self._span.end:",
        "        if not first_offset <= last_offset < self._span.end:",
        (f"{_AT_SNAPSHOTS}records_that_come_twice_or_from_beyond_are_an_error",),
    ),
    Mutant(
        "two parts of one partition are published",
        _SPANS,
        "    if got != sorted(job.by_partition):",
        "    if not set(got) <= set(job.by_partition):",
        (f"{_AT_SNAPSHOTS}every_span_is_published_once_and_with_its_topics_id",),
    ),
    Mutant(
        "the newest snapshot is built upon, trusted or not",
        _SPANS,
        "        if reason is None:\n            return manifest",
        "        if True:\n            return manifest",
        (f"{_AT_SNAPSHOTS}a_snapshot_that_is_not_trusted_is_not_built_upon",),
    ),
    Mutant(
        "a topic's id is not kept",
        _SPANS,
        "            topic_id=job.topic_id,",
        "            topic_id=None,",
        (f"{_AT_SNAPSHOTS}every_span_is_published_once_and_with_its_topics_id",),
    ),
    Mutant(
        "a topic that was recreated meanwhile is published",
        _RUN,
        "    if now.topic_id != before.topic_id or ended_before:",
        "    if ended_before:",
        (f"{_AT_SNAPSHOTS}a_topic_that_was_made_anew_meanwhile_is_not_published",),
    ),
    Mutant(
        "offsets that step back are taken",
        _RUN,
        "        if (np.diff(part) <= 0).any():",
        "        if False:",
        ("tests/unit/snapshots/test_batches.py::test_records_out_of_place_fail_the_task",),
    ),
    Mutant(
        "a damaged base ends the run",
        _RUN,
        "        if not previous or not is_corrupt_base(error):",
        "        if True:",
        (f"{_AT_SNAPSHOTS}a_damaged_base_is_passed_over_once_and_only_where_there_was_one",),
    ),
    Mutant(
        "an hour has sixty seconds",
        _SNAPSHOT_JOB,
        '"h": 3_600_000',
        '"h": 60_000',
        (f"{_AT_SNAPSHOTS}durations_are_what_they_say",),
    ),
    Mutant(
        "a topic's name is a path",
        _SNAPSHOT_JOB,
        "    if not is_topic(options.topic):",
        "    if False:",
        (f"{_AT_SNAPSHOTS}a_name_that_no_topic_can_have_is_refused_before_anything_is_asked",),
    ),
    Mutant(
        "of topics that travel together the busiest alone counts",
        _RATES,
        "        summed[task] += cost",
        "        summed[task] = max(summed[task], cost)",
        (f"{_AT_RATES}two_busy_topics_that_travel_together_are_twice_the_work",),
    ),
    Mutant(
        "a worker's absence counts as time at work",
        _RATES,
        "typical if gap is None or gap > HOLE * typical else float(gap)",
        "typical if gap is None else float(gap)",
        (f"{_AT_RATES}a_hole_covers_one_interval_not_hours",),
    ),
    Mutant(
        "a first sample covers nothing",
        _RATES,
        "[typical if gap is None or gap",
        "[0.0 if gap is None else typical if gap",
        (f"{_AT_RATES}a_rate_is_what_came_in_over_the_time_the_samples_cover",),
    ),
    Mutant(
        "topics are clamped one by one",
        _RATES,
        "    tasks = [(counts[rate.topic], rate.partition) for rate in rates]",
        "    tasks = [(rate.topic, rate.partition) for rate in rates]",
        (f"{_AT_RATES}a_task_is_weighed_by_all_that_travels_with_it",),
    ),
    Mutant(
        "the first state size counts",
        _RATES,
        "        amounts[-1][3],",
        "        amounts[0][3],",
        (f"{_AT_PUBLISH}of_a_state_its_latest_size_counts",),
    ),
    Mutant(
        "a replay is measured by its bytes although offsets are known",
        _RATES,
        "    return float(rate.end_offset) or rate.state_bytes / bytes_per_record(rate)",
        "    return rate.state_bytes / bytes_per_record(rate)",
        (f"{_AT_RATES}the_records_to_replay_come_from_the_changelogs_offset",),
    ),
    Mutant(
        "a quiet cost takes part in the blend",
        _RATES,
        "        if found[name].sum() > 0\n",
        "        if found[name].sum() >= 0\n",
        (f"{_AT_PUBLISH}a_cost_that_nobody_measured_takes_no_part_in_the_blend",),
    ),
    Mutant(
        "a file named by URL is written in place",
        _PUBLISH,
        '        if "file" not in fs.protocol:',
        "        if True:",
        (f"{_AT_PUBLISH}a_file_named_by_url_is_replaced_in_one_step_too",),
    ),
    Mutant(
        "a reader finds half a file",
        _PUBLISH,
        '    fresh = target.with_name(f".{target.name}.{os.getpid()}")',
        "    fresh = target.with_name(target.name)",
        (f"{_AT_PUBLISH}a_reader_finds_the_old_file_or_the_new_one",),
    ),
    Mutant(
        "a document too large for a record is sent",
        _PUBLISH,
        "        if len(value) > MAX_RECORD_BYTES:",
        "        if False:",
        (f"{_AT_PUBLISH}a_document_too_large_for_a_record_is_said_before_anything_is_sent",),
    ),
    Mutant(
        "weights that no assignor takes are published",
        _WEIGHTS_JOB,
        "    decode(document)  # what no assignor would take is not published\n",
        "",
        (f"{_AT_PUBLISH}weights_that_no_assignor_would_take_are_not_written",),
    ),
    Mutant(
        "stale samples are not told",
        _WEIGHTS_JOB,
        "request.now - newest > timedelta(seconds=MAX_AGE_S)",
        "False",
        (f"{_AT_PUBLISH}samples_that_are_too_old_to_count_are_told",),
    ),
    Mutant(
        "on Spark a hole is an interval",
        _SPARK_WEIGHTS,
        'F.when(F.col("gap_ms") <= HOLE * F.col("typical_ms"), F.col("gap_ms").cast("double"))',
        'F.when(F.col("gap_ms") > 0, F.col("gap_ms").cast("double"))',
        (f"{_LEARNT}spark_and_plain_python_learn_the_same_weights",),
    ),
)

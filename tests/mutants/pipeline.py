"""Planted bugs of the pipeline: reading ledgers, history, weights, snapshots, simulations, and how they end."""

from __future__ import annotations

from tests.mutants import Mutant

_CLUSTER = "faust_assigner/pipeline/cluster.py"
_CONSOLE = "faust_assigner/pipeline/console.py"
_DOCTOR = "faust_assigner/pipeline/doctor.py"
_FAILURE = "faust_assigner/pipeline/failure.py"
_JARS = "faust_assigner/pipeline/jars.py"
_JOBS = "faust_assigner/pipeline/jobs.py"
_SCHEMA = "faust_assigner/pipeline/schema.py"
_SESSION = "faust_assigner/pipeline/session.py"
_SINKS = "faust_assigner/pipeline/sinks.py"
_HERE = "faust_assigner/pipeline/history/here.py"
_OUTPUT = "faust_assigner/pipeline/history/output.py"
_PLOTS = "faust_assigner/pipeline/history/plots.py"
_REPORT = "faust_assigner/pipeline/history/report.py"
_TRANSFORMS = "faust_assigner/pipeline/history/transforms.py"
_STREAM_LINES = "faust_assigner/pipeline/history/stream_lines.py"
_CURRENT = "faust_assigner/pipeline/ledgers/current.py"
_FILES = "faust_assigner/pipeline/ledgers/files.py"
_PARSE = "faust_assigner/pipeline/ledgers/parse.py"
_PERIOD = "faust_assigner/pipeline/ledgers/period.py"
_QUARANTINE = "faust_assigner/pipeline/ledgers/quarantine.py"
_REFUSALS = "faust_assigner/pipeline/ledgers/refusals.py"
_ROWS = "faust_assigner/pipeline/ledgers/rows.py"
_SOURCES = "faust_assigner/pipeline/ledgers/sources.py"
_TOPICS = "faust_assigner/pipeline/ledgers/topics.py"
_DIARY = "faust_assigner/pipeline/simulate/diary.py"
_FACTS = "faust_assigner/pipeline/simulate/facts.py"
_MEASURED = "faust_assigner/pipeline/simulate/measured.py"
_POLICIES = "faust_assigner/pipeline/simulate/policies.py"
_RECORDED = "faust_assigner/pipeline/simulate/recorded.py"
_SCENARIOS = "faust_assigner/pipeline/simulate/scenarios.py"
_SETTINGS = "faust_assigner/pipeline/simulate/settings.py"
_WHAT_IF = "faust_assigner/pipeline/simulate/what_if.py"
_SPANS = "faust_assigner/pipeline/snapshots/spans.py"
_RUN = "faust_assigner/pipeline/snapshots/run.py"
_SNAPSHOT_JOB = "faust_assigner/pipeline/snapshots/job.py"
_RATES = "faust_assigner/pipeline/weights/rates.py"
_PUBLISH = "faust_assigner/pipeline/weights/publish.py"
_WEIGHTS_JOB = "faust_assigner/pipeline/weights/job.py"
_SPARK_WEIGHTS = "faust_assigner/pipeline/weights/transforms.py"

_AT_CLUSTER = "tests/unit/pipeline/test_cluster.py::test_"
_AT_CONSOLE = "tests/unit/pipeline/test_console.py::test_"
_AT_DOCTOR = "tests/unit/pipeline/test_doctor.py::test_"
_AT_FAILURE = "tests/unit/pipeline/test_failure.py::test_"
_AT_SESSION = "tests/unit/pipeline/test_session.py::test_"
_AT_HERE = "tests/unit/pipeline/history/test_here.py::test_"
_AT_OUTPUT = "tests/unit/pipeline/history/test_output.py::test_"
_AT_PLOTS = "tests/unit/pipeline/history/test_plots.py::test_"
_AT_PERIOD = "tests/unit/pipeline/ledgers/test_period.py::test_"
_AT_REFUSALS = "tests/unit/pipeline/ledgers/test_refusals.py::test_"
_AT_SOURCES = "tests/unit/pipeline/ledgers/test_sources.py::test_"
_AT_DIARY = "tests/unit/pipeline/simulate/test_diary.py::test_"
_AT_SCENARIOS = "tests/unit/pipeline/simulate/test_scenarios.py::test_"
_AT_SETTINGS = "tests/unit/pipeline/simulate/test_settings.py::test_"
_AT_WHAT_IF = "tests/unit/pipeline/simulate/test_what_if.py::test_"
_AT_SNAPSHOTS = "tests/unit/pipeline/snapshots/test_job.py::test_"
_AT_RATES = "tests/unit/pipeline/weights/test_rates.py::test_"
_AT_PUBLISH = "tests/unit/pipeline/weights/test_publish.py::test_"
_SPARK_HISTORY = "tests/integration/spark/test_history.py::test_"
_ON_STREAMS = "tests/integration/spark/test_stream.py::test_"
_LEARNT = "tests/integration/spark/test_weights_spark.py::test_"
_PLAYED = "tests/integration/spark/test_simulate_spark.py::test_"

MUTANTS = (
    Mutant("certificates are not checked for the host's name", _CLUSTER,
        "\"https\") != \"\"",
        "\"\") != \"\"",
        (f"{_AT_CLUSTER}a_hosts_name_is_checked_unless_that_is_switched_off",)),
    Mutant("the environment goes behind the file", _CLUSTER,
        "            found[name.removeprefix(ENVIRONMENT).lower().replace(\"_\", \".\")] = value",
        "            found.setdefault(name.removeprefix(ENVIRONMENT).lower().replace(\"_\", \".\"), value)",
        (f"{_AT_CLUSTER}the_environment_goes_before_the_file",)),
    Mutant("a quote in a password ends it", _CLUSTER,
        "    return text.replace(\"\\\\\", \"\\\\\\\\\").replace('\"', '\\\\\"')",
        "    return text",
        (f"{_AT_CLUSTER}spark_is_told_a_login_once_and_escaped",)),
    Mutant("Spark is told the password a second time, in the clear", _CLUSTER,
        " if name not in _OURS}",
        "}",
        (f"{_AT_CLUSTER}spark_is_told_a_login_once_and_escaped",)),
    Mutant("an unknown protocol is plaintext", _CLUSTER,
        "        if protocol not in _PROTOCOLS:",
        "        if False:",
        (f"{_AT_CLUSTER}an_unknown_protocol_is_refused_by_name",)),
    Mutant("a broken snapshot is called unfinished", _CONSOLE,
        "\"BROKEN\" if each.manifest else \"unfinished\"",
        "\"unfinished\"",
        (f"{_AT_CONSOLE}a_broken_snapshot_is_told_apart_from_an_unfinished_one",)),
    Mutant("the oldest rows of a long table are printed", _CONSOLE,
        "rows[-ROWS_PRINTED:]",
        "rows[:ROWS_PRINTED]",
        (f"{_AT_CONSOLE}of_a_long_table_the_newest_rows_are_printed",)),
    Mutant("an old Java is fit", _DOCTOR,
        "    if version < JAVA_AT_LEAST:",
        "    if False:",
        (f"{_AT_DOCTOR}old_java_fails",)),
    Mutant("a missing connector is fatal", _DOCTOR,
        "Finding(\"kafka-connector\", WARNING,",
        "Finding(\"kafka-connector\", FAILED,",
        (f"{_AT_DOCTOR}missing_jars_are_a_warning",)),
    Mutant("Java 1.8 is Java 1", _DOCTOR,
        "version \"(?:1\\.)?(\\d+)",
        "version \"(\\d+)",
        (f"{_AT_DOCTOR}java_versions_old_and_new",)),
    Mutant("workers of another Python pass", _DOCTOR,
        "    if there != here:",
        "    if False:",
        (f"{_AT_DOCTOR}workers_python_must_be_the_drivers",)),
    Mutant("nobody answering is final", _FAILURE,
        "return f\"Spark: {last_words(text)}\", TRY_AGAIN if _UNREACHABLE.search(text) else FAILED",
        "return f\"Spark: {last_words(text)}\", FAILED",
        (f"{_AT_FAILURE}each_error_has_the_code_that_says_whether_to_try_again",)),
    Mutant("an error's cause is not looked at", _FAILURE,
        "    return \" \".join(names) + (f\" {_lineage(cause)}\" if cause is not None else \"\")",
        "    return \" \".join(names)",
        (f"{_AT_FAILURE}each_error_has_the_code_that_says_whether_to_try_again",)),
    Mutant("a bug of ours is said in one line", _FAILURE,
        "    return None\n"
        "\n"
        "\n"
        "def last_words",
        "    return str(error), FAILED\n"
        "\n"
        "\n"
        "def last_words",
        (f"{_AT_FAILURE}what_is_our_own_bug_keeps_its_traceback",)),
    Mutant("Java's first words are told instead of the last", _FAILURE,
        "return (telling or lines or [\"no reason given\"])[-1 if telling else 0]",
        "return (lines or [\"no reason given\"])[0]",
        (f"{_AT_FAILURE}javas_last_cause_is_told_and_not_its_first_words",)),
    Mutant("jars of a download that broke off are used", _JARS,
        "if (folder / \".complete\").exists() else []",
        "if folder.exists() else []",
        (f"{_AT_SESSION}jars_of_a_download_that_broke_off_are_none",)),
    Mutant("a job that is not there ends well", _JOBS,
        "file=sys.stderr)\n"
        "        return USAGE",
        "file=sys.stderr)\n"
        "        return 0",
        (f"{_AT_FAILURE}a_job_that_is_not_there_is_a_wrong_question",)),
    Mutant("an optional column is called with its mark", _SCHEMA,
        "Column(name.rstrip(\"?\"), kind,",
        "Column(name, kind,",
        (f"{_AT_SESSION}a_question_mark_makes_a_column_optional_and_is_no_part_of_its_name",)),
    Mutant("days are those of the machine", _SESSION,
        "    \"spark.sql.session.timeZone\": \"UTC\",\n",
        "",
        (f"{_AT_SESSION}days_are_utc_days_on_every_machine",)),
    Mutant("a bucket is in the host name of a server of one's own", _SESSION,
        ", \"spark.hadoop.fs.s3a.path.style.access\": \"true\"",
        "",
        (f"{_AT_SESSION}a_server_of_ones_own_has_no_bucket_in_its_name",)),
    Mutant("local[4] shuffles as wide as the machine", _SESSION,
        "    if inside.isdigit():\n"
        "        return max(1, int(inside))\n",
        "",
        (f"{_AT_SESSION}a_local_session_shuffles_as_wide_as_it_runs",)),
    Mutant("a table is gone while it is replaced", _SINKS,
        "        if self.exists(*target):\n"
        "            self._rename(target, old)\n",
        "        self.remove(*target)\n",
        (f"{_AT_OUTPUT}a_file_that_is_replaced_is_there_all_the_while",)),
    Mutant("a run that failed leaves no mark", _SINKS,
        "        yield\n"
        "        self.remove(REPLACING)",
        "        try:\n"
        "            yield\n"
        "        finally:\n"
        "            self.remove(REPLACING)",
        (f"{_AT_OUTPUT}a_run_that_fails_leaves_its_mark",)),
    Mutant("a day that is gone stays", _SINKS,
        "        else:\n"
        "            self.remove(table, name)",
        "        else:\n"
        "            pass",
        (f"{_AT_OUTPUT}a_day_that_was_not_staged_is_gone",)),
    Mutant("days of another run stay staged", _SINKS,
        "        self.remove(STAGING, table)\n"
        "        columns = HISTORY[table]",
        "        columns = HISTORY[table]",
        (f"{_AT_OUTPUT}days_that_were_staged_before_are_not_published",)),
    Mutant("a decision told twice counts as the later told", _HERE,
        "        if key not in found or said < found[key][0]:",
        "        if True:",
        (f"{_AT_OUTPUT}of_decisions_that_disagree_under_one_id_the_earliest_stands",)),
    Mutant("standbys count as placements", _HERE,
        "        if row[\"role\"] == \"active\":\n"
        "            mine, place",
        "        if True:\n"
        "            mine, place",
        (f"{_AT_OUTPUT}recoveries_and_placements_that_are_told_twice_count_once",)),
    Mutant("a member told twice is idle", _HERE,
        "    members = dict.fromkeys(member[\"member_id\"] for member in decision[\"members\"])",
        "    members = [member[\"member_id\"] for member in decision[\"members\"]]",
        (f"{_AT_OUTPUT}a_member_that_is_told_twice_is_one",)),
    Mutant("Faust's leader topic is a task", _HERE,
        "                         if not is_leader_topic(row[\"topic\"])}",
        "                         }",
        (f"{_AT_HERE}the_page_tells_each_rebalance_and_who_owns_what",)),
    Mutant("a counter that was reset takes away", _HERE,
        "        records[key] += max(0, row[\"records_in\"])",
        "        records[key] += row[\"records_in\"]",
        (f"{_AT_OUTPUT}a_counter_that_was_reset_takes_nothing_away",)),
    Mutant("a recovery told twice counts twice", _HERE,
        "    recovered = _distinct(tables[\"recovery\"])",
        "    recovered = tables[\"recovery\"]",
        (f"{_AT_OUTPUT}recoveries_and_placements_that_are_told_twice_count_once",)),
    Mutant("placements of lost decisions are not told", _HERE,
        "for key, mine in placed.items() if key not in decisions)",
        "for key, mine in placed.items() if key in decisions)",
        (f"{_AT_HERE}without_pyspark_installed_the_tables_are_the_models",)),
    Mutant("a broken report.json stops every later run", _OUTPUT,
        "    except (ValueError, KeyError, TypeError):\n"
        "        return None\n"
        "    now",
        "    except KeyError:\n"
        "        return None\n"
        "    now",
        (f"{_AT_OUTPUT}a_report_that_is_broken_is_replaced",)),
    Mutant("days are taken as unchanged after a run that died", _OUTPUT,
        "    if folder.exists(REPLACING) or not folder.exists(\"report.json\") or not "
        "folder.exists(table):\n"
        "        return None\n",
        "    if not folder.exists(\"report.json\") or not folder.exists(table):\n"
        "        return None\n",
        (f"{_AT_OUTPUT}days_that_a_dead_run_replaced_are_written_again",)),
    Mutant("a picture of a table that is empty now stays", _OUTPUT,
        "    if content is None:\n"
        "        folder.remove(name)",
        "    if content is None:\n"
        "        pass",
        (f"{_AT_OUTPUT}a_picture_of_a_table_that_is_empty_now_goes",)),
    Mutant("a day's worst share is its last", _PLOTS,
        "if partition not in worst or row[\"share\"] > worst[partition][\"share\"]:",
        "if True:",
        (f"{_AT_PLOTS}of_a_partition_its_worst_day_is_drawn",)),
    Mutant("labels lie upon each other", _PLOTS,
        "    every = -(-len(labels) // room)",
        "    every = 1",
        (f"{_AT_PLOTS}labels_do_not_overlap",)),
    Mutant("the oldest rebalances lead", _REPORT,
        "        return list(reversed(rows))",
        "        return list(rows)",
        (f"{_AT_OUTPUT}the_newest_rebalance_leads_the_page_and_times_are_utc",)),
    Mutant("hidden refused lines are not counted", _REPORT,
        "max(len(rows), report.refused if name == \"quarantine\" else 0)",
        "len(rows)",
        (f"{_AT_OUTPUT}refused_lines_that_are_not_shown_are_counted",)),
    Mutant("a span swallows the number behind it", _REPORT,
        "if found and number == found[-1][1] + 1:",
        "if found and number <= found[-1][1] + 2:",
        (f"{_AT_OUTPUT}partition_numbers_are_told_as_spans",)),
    Mutant("the oldest decision is the current one", _CURRENT,
        "if known is None or _age(values) > _age(known):",
        "if known is None or _age(values) < _age(known):",
        (f"{_AT_REFUSALS}the_newest_decision_is_the_current_one_and_its_rows_alone_count",)),
    Mutant("rows of other decisions count", _CURRENT,
        "return decision is not None and decision[\"decision_id\"] == assignment[\"decision_id\"]",
        "return decision is not None",
        (f"{_AT_REFUSALS}the_newest_decision_is_the_current_one_and_its_rows_alone_count",)),
    Mutant("members lose their instance ids", _CURRENT,
        "instance_id=member.get(\"instance_id\"), ",
        "",
        (f"{_AT_HERE}the_page_tells_each_rebalance_and_who_owns_what",)),
    Mutant("a line across a chunk's edge is read twice", _FILES,
        "        for line, length in _split(stream):\n"
        "            if position >= chunk.end:\n"
        "                return\n"
        "            yield position",
        "        for line, length in _split(stream):\n"
        "            if position > chunk.end:\n"
        "                return\n"
        "            yield position",
        (f"{_AT_SOURCES}chunks_of_any_size_give_the_files_lines",)),
    Mutant("a chunk that begins at a line's start skips it", _FILES,
        "stream.seek(chunk.start - 1)\n"
        "            position = chunk.start - 1 + _skip_line(stream)",
        "stream.seek(chunk.start)\n"
        "            position = chunk.start + _skip_line(stream)",
        (f"{_AT_SOURCES}chunks_of_any_size_give_the_files_lines",)),
    Mutant("a packed file is cut", _FILES,
        "    if is_packed(name):\n"
        "        return [Chunk(name, 0, end)] if end else []\n",
        "",
        (f"{_AT_SOURCES}packed_file_gives_its_lines",)),
    Mutant("a link and its target are two files", _FILES,
        "    return os.path.realpath(name) if _is_local(fs) else name",
        "    return name",
        (f"{_AT_SOURCES}file_reached_in_many_ways_is_found_once",)),
    Mutant("a zst file is passed over in silence", _FILES,
        "        if LEDGER_NAME.search(entry[\"name\"]) or _PACKED_OTHERWISE.search(entry[\"name\"]):",
        "        if LEDGER_NAME.search(entry[\"name\"]):",
        (f"{_AT_SOURCES}packing_that_is_not_read_is_an_error_and_no_silence",)),
    Mutant("a long line fills the memory", _FILES,
        "    room = MAX_LINE_BYTES + 1 - length\n",
        "    room = 2**62\n",
        (f"{_AT_SOURCES}long_line_is_cut_and_the_next_is_whole",)),
    Mutant("a torn packed file ends the job", _FILES,
        "    except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:",
        "    except MemoryError as error:",
        (f"{_AT_SOURCES}torn_packed_file_gives_the_lines_before_and_one_refusal",)),
    Mutant("a half-written line is never read whole", _FILES,
        "                return start + found + 1\n"
        "            high",
        "                return size\n"
        "            high",
        (f"{_AT_SOURCES}open_line_is_found_from_the_end",)),
    Mutant("the last line without newline is lost", _FILES,
        "    if length:\n"
        "        yield b\"\".join(held), length",
        "    if False:\n"
        "        yield b\"\".join(held), length",
        (f"{_AT_SOURCES}packed_file_gives_its_lines",)),
    Mutant("rows stand at other lines' places", _PARSE,
        "            at.append(len(self.places))\n"
        "            rows.append",
        "            at.append(max(len(self.places) - 1, 0))\n"
        "            rows.append",
        (f"{_AT_OUTPUT}a_report_that_is_broken_is_replaced",)),
    Mutant("a tombstone in a topic ends the job", _PARSE,
        "value or b\"\"",
        "value",
        (f"{_AT_OUTPUT}a_report_that_is_broken_is_replaced",)),
    Mutant("what a damaged file held before is lost", _PARSE,
        "            batch.refuse((chunk.name, chunk.start, error.position, lines), str(error))\n",
        "            raise\n",
        (f"{_AT_SOURCES}torn_packed_file_gives_the_lines_before_and_one_refusal",)),
    Mutant("--until takes the moment itself", _PERIOD,
        "moment < self.until)",
        "moment <= self.until)",
        (f"{_AT_PERIOD}a_period_begins_with_its_first_moment_and_ends_before_its_last",)),
    Mutant("files of the last hour before are not opened", _PERIOD,
        "changed < self.since - SLACK:",
        "changed < self.since + SLACK:",
        (f"{_AT_PERIOD}files_outside_are_not_read_and_rows_outside_are_left_out",)),
    Mutant("assignments of earlier decisions count", _PERIOD,
        "in decisions if row.table == \"assignment\"\n"
        "            else self",
        "in decisions or True if row.table == \"assignment\"\n"
        "            else self",
        (f"{_AT_PERIOD}files_outside_are_not_read_and_rows_outside_are_left_out",)),
    Mutant("a period that ends before it begins is taken", _PERIOD,
        "found.since >= found.until:",
        "False:",
        (f"{_AT_PERIOD}what_is_no_period_is_said",)),
    Mutant("a share counts refused lines alone", _REFUSALS,
        "int(self.share * (refused.accepted + refused.lines))",
        "int(self.share * refused.lines)",
        (f"{_AT_REFUSALS}a_share_is_of_all_lines",)),
    Mutant("an empty ledger replaces a good history", _REFUSALS,
        "    if wanted or replaces or refused.lines:",
        "    if wanted or refused.lines:",
        (f"{_AT_REFUSALS}an_empty_ledger_replaces_nothing_good",)),
    Mutant("all refused lines are kept", _REFUSALS,
        "        if len(self.kept) < self.keep:",
        "        if True:",
        (f"{_AT_REFUSALS}only_so_many_refused_lines_are_kept_and_all_are_counted",)),
    Mutant("lines are numbered from 0", _ROWS,
        "        for _, line in read_lines(Chunk(file.name, 0, file.size)):\n"
        "            number += 1\n"
        "            found = parse(line)",
        "        for number, (_, line) in enumerate(read_lines(Chunk(file.name, 0, file.size))):\n"
        "            found = parse(line)",
        (f"{_AT_REFUSALS}what_is_read_here_is_held_to_the_tolerance",)),
    Mutant("what was refused does not count against the tolerance", _ROWS,
        "    tolerance.check(refused)\n"
        "    return rows, refused",
        "    return rows, refused",
        (f"{_AT_REFUSALS}what_is_read_here_is_held_to_the_tolerance",)),
    Mutant("a rotated file is taken for one that grew", _SOURCES,
        "        same = _digest(read_head(file.name, known.head_bytes)) == known.head",
        "        same = True",
        (f"{_AT_SOURCES}offsets_follow_growth_torn_lines_and_rotation",)),
    Mutant("a half-written line is not read again", _SOURCES,
        "                chunks += cut(name, before.at, now.size)",
        "                chunks += cut(name, before.size, now.size)",
        (f"{_AT_SOURCES}offsets_follow_growth_torn_lines_and_rotation",)),
    Mutant("a mount that is away makes the stream begin anew", _SOURCES,
        "        kept = {} if all_answered else start",
        "        kept = {}",
        (f"{_AT_SOURCES}offset_forgets_nothing_while_a_path_does_not_answer",)),
    Mutant("files that are gone stay in the offset for ever", _SOURCES,
        "        kept = {} if all_answered else start",
        "        kept = start",
        (f"{_AT_SOURCES}offset_forgets_files_that_are_gone_once_there_is_news",)),
    Mutant("a topic's password is told with the options", _TOPICS,
        "\"properties_secret\": json",
        "\"properties\": json",
        (f"{_AT_REFUSALS}a_clusters_secrets_travel_under_a_name_that_is_not_shown",)),
    Mutant("a stream steps back behind what it read", _TOPICS,
        "max(end, start.get(number, 0))",
        "end",
        (f"{_AT_REFUSALS}a_stream_never_steps_back_behind_what_it_read",)),
    Mutant("lines are numbered by chunk", _QUARANTINE,
        "F.when(c[\"start\"] < F.col(\"chunk\"), c[\"standing\"]).otherwise(F.lit(0))",
        "F.lit(0)",
        (f"{_SPARK_HISTORY}line_numbers_are_right_in_a_file_read_in_many_chunks",)),
    Mutant("a restart is a leave and a join", _DIARY,
        "RETURN_S = 300.0",
        "RETURN_S = 0.0",
        (f"{_AT_SCENARIOS}a_recorded_week_is_read_as_it_happened",)),
    Mutant("a crash is dated when it was noticed", _DIARY,
        "max(0.0, at - session_s) if crashed else at",
        "at",
        (f"{_AT_DIARY}a_static_member_died_a_session_before_it_was_missed",)),
    Mutant("a quiet night is a crash of everybody", _DIARY,
        "and others and min(others) < enough / 2)",
        "and True)",
        (f"{_AT_DIARY}a_member_that_fell_silent_for_a_session_crashed",)),
    Mutant("a static member that is back is a new worker", _DIARY,
        "name = member[\"rack\"], member.get(\"instance_id\") or member[\"member_id\"]",
        "name = member[\"rack\"], member[\"member_id\"]",
        (f"{_AT_DIARY}a_static_member_that_returns_is_the_same_worker_however_late",)),
    Mutant("a recovery without records tells a speed", _MEASURED,
        "    if records >= LEAST_RECORDS:",
        "    if records > 0:",
        (f"{_AT_DIARY}costs_are_the_ledgers_own_where_it_measured_enough",)),
    Mutant("the shortest session counts", _MEASURED,
        "max(sessions)",
        "min(sessions)",
        (f"{_AT_WHAT_IF}the_longest_session_of_the_newest_decisions_counts",)),
    Mutant("warm recoveries with much to read are takeovers", _MEASURED,
        "            if not each.cold and each.records <= costs.acceptable_recovery_lag]",
        "            if not each.cold]",
        (f"{_AT_WHAT_IF}a_warm_recovery_with_much_to_read_is_no_takeover",)),
    Mutant("a decision stands before it was made", _RECORDED,
        "    at = bisect.bisect_right(times[0], moment)\n",
        "    at = bisect.bisect_left(times[0], moment)\n",
        (f"{_AT_WHAT_IF}a_decision_stands_from_its_very_moment_on",)),
    Mutant("weightless topics carry load", _RECORDED,
        "and topic.topic not in idle]",
        "]",
        (f"{_AT_WHAT_IF}topics_that_weigh_nothing_are_no_tasks_of_a_recorded_week",)),
    Mutant("recoveries of other groups calibrate", _RECORDED,
        "recoveries=tuple(each for each in self.recoveries if each.group_id == group_id))",
        "recoveries=self.recoveries)",
        (f"{_AT_WHAT_IF}facts_of_a_group_are_its_own",)),
    Mutant("a rolling deploy hits one worker again and again", _RECORDED,
        "    fair = [member_id for member_id in running if restarts[member_id] == fewest]",
        "    fair = list(running)",
        (f"{_AT_SCENARIOS}variations_of_a_week_keep_its_incidents_and_change_their_victims",)),
    Mutant("heavy partitions wander between groups", _RECORDED,
        "    order = np.concatenate([start + draw.permutation(group.partitions) for group, start in\n"
        "                            zip(recorded.groups, recorded.offsets.tolist(), strict=False)])",
        "    order = draw.permutation(len(recorded.rates))",
        (f"{_AT_SCENARIOS}variations_of_a_week_keep_its_incidents_and_change_their_victims",)),
    Mutant("the same scenario whatever its number", _SCENARIOS,
        "np.random.SeedSequence([seed, scenario_id])",
        "np.random.SeedSequence([seed])",
        (f"{_AT_WHAT_IF}each_scenario_has_a_seed_of_its_own",)),
    Mutant("hot partitions have no more state than others", _SCENARIOS,
        "        records.append(np.floor(shares * group.partitions * size))",
        "        records.append(np.floor(np.full(group.partitions, size)))",
        (f"{_AT_WHAT_IF}the_hot_partitions_are_also_the_large_ones",)),
    Mutant("static members are compared with dynamic ones", _SETTINGS,
        "base != other_base and (\"static\" in switches) == (\"static\" in other_switches)",
        "base != other_base",
        (f"{_AT_SETTINGS}the_other_policy_stands_beside_ours_under_the_same_conditions",)),
    Mutant("a chance difference is a verdict", _SETTINGS,
        "    if interval is None or interval[0] <= 0 <= interval[1]:",
        "    if interval is None:",
        (f"{_AT_WHAT_IF}a_difference_that_may_be_chance_is_even",)),
    Mutant("differences are not paired", _SETTINGS,
        "values = np.array([mine[name] - theirs[name] for name in shared])",
        "values = np.array([mine[a] - theirs[b] for a, b in zip(shared, reversed(shared), strict=True)])",
        (f"{_AT_WHAT_IF}differences_are_taken_scenario_by_scenario",)),
    Mutant("the most standbys are recommended", _SETTINGS,
        "best = min(even, key=lambda arm: (arm[\"standbys\"],",
        "best = min(even, key=lambda arm: (-arm[\"standbys\"],",
        (f"{_AT_SETTINGS}the_fewest_standbys_among_settings_that_are_as_calm_win",)),
    Mutant("the winner is the loser", _SETTINGS,
        "    return policy if interval[1] < 0 else rival",
        "    return rival if interval[1] < 0 else policy",
        (f"{_AT_SETTINGS}where_the_other_policy_stops_less_it_is_said",)),
    Mutant("an unknown switch is taken", _POLICIES,
        "        if unknown:\n",
        "        if False:\n",
        (f"{_AT_SETTINGS}an_unknown_policy_is_refused_before_anything_runs",)),
    Mutant("aiokafka's strategies get standbys", _POLICIES,
        "counts = replicas if not name.startswith(\"aiokafka-\") else (0,)",
        "counts = replicas",
        (f"{_AT_SETTINGS}arms_are_policies_with_switches_and_standbys",)),
    Mutant("a member is not known by its instance id", _WHAT_IF,
        "return (member.member_id,) if member.instance_id is None else (member.instance_id, "
        "member.member_id)",
        "return (member.member_id,)",
        (f"{_AT_DIARY}remove_takes_an_instance_id_and_names_who_there_is",)),
    Mutant("new members crowd one rack", _WHAT_IF,
        "        crowd[rack] += 1\n",
        "",
        (f"{_AT_WHAT_IF}new_workers_stand_where_the_fewest_are",)),
    Mutant("a move to a standby is cold", _WHAT_IF,
        "holders = had | {name for key in kept for name in spares.get(key, ())}",
        "holders = had",
        (f"{_AT_WHAT_IF}losing_a_rack_with_standbys_elsewhere_is_warm",)),
    Mutant("records that come twice are taken twice", _SPANS,
        "        if not self._next <= first_offset <= last_offset < self._span.end:",
        "        if not first_offset <= last_offset < self._span.end:",
        (f"{_AT_SNAPSHOTS}records_that_come_twice_or_from_beyond_are_an_error",)),
    Mutant("two parts of one partition are published", _SPANS,
        "    if got != sorted(job.by_partition):",
        "    if not set(got) <= set(job.by_partition):",
        (f"{_AT_SNAPSHOTS}every_span_is_published_once_and_with_its_topics_id",)),
    Mutant("the newest snapshot is built upon, trusted or not", _SPANS,
        "        if reason is None:\n"
        "            return manifest",
        "        if True:\n"
        "            return manifest",
        (f"{_AT_SNAPSHOTS}a_snapshot_that_is_not_trusted_is_not_built_upon",)),
    Mutant("a topic's id is not kept", _SPANS,
        "            topic_id=job.topic_id)",
        "            topic_id=None)",
        (f"{_AT_SNAPSHOTS}every_span_is_published_once_and_with_its_topics_id",)),
    Mutant("a topic that was recreated meanwhile is published", _RUN,
        "    if now.topic_id != before.topic_id or ended_before:",
        "    if ended_before:",
        (f"{_AT_SNAPSHOTS}a_topic_that_was_made_anew_meanwhile_is_not_published",)),
    Mutant("offsets that step back are taken", _RUN,
        "        if (np.diff(part) <= 0).any():",
        "        if False:",
        ("tests/unit/snapshots/test_batches.py::test_records_out_of_place_fail_the_task",)),
    Mutant("a damaged base ends the run", _RUN,
        "        if not previous or not is_corrupt_base(error):",
        "        if True:",
        (f"{_AT_SNAPSHOTS}a_damaged_base_is_passed_over_once_and_only_where_there_was_one",)),
    Mutant("an hour has sixty seconds", _SNAPSHOT_JOB,
        "\"h\": 3_600_000",
        "\"h\": 60_000",
        (f"{_AT_SNAPSHOTS}durations_are_what_they_say",)),
    Mutant("a topic's name is a path", _SNAPSHOT_JOB,
        "    if not is_topic(options.topic):",
        "    if False:",
        (f"{_AT_SNAPSHOTS}a_name_that_no_topic_can_have_is_refused_before_anything_is_asked",)),
    Mutant("a worker's absence counts as time at work", _RATES,
        "sum(gap if gap <= HOLE * typical else typical for gap in _gaps_ms(moments))",
        "sum(_gaps_ms(moments))",
        (f"{_AT_RATES}a_hole_covers_one_interval_not_hours",)),
    Mutant("a first sample covers nothing", _RATES,
        "    covered = typical + sum",
        "    covered = sum",
        (f"{_AT_RATES}a_rate_is_what_came_in_over_the_time_the_samples_cover",)),
    Mutant("topics are clamped one by one", _RATES,
        "    tasks = [(counts[rate.topic], rate.partition) for rate in rates]",
        "    tasks = [(rate.topic, rate.partition) for rate in rates]",
        (f"{_AT_RATES}a_task_is_weighed_by_all_that_travels_with_it",)),
    Mutant("the first state size counts", _RATES,
        "mine[moments[-1]][3], moments[-1]",
        "mine[moments[0]][3], moments[-1]",
        (f"{_AT_PUBLISH}of_a_state_its_latest_size_counts",)),
    Mutant("a replay is measured by its bytes although offsets are known", _RATES,
        "    return float(rate.end_offset) or rate.state_bytes / bytes_per_record(rate)",
        "    return rate.state_bytes / bytes_per_record(rate)",
        (f"{_AT_RATES}the_records_to_replay_come_from_the_changelogs_offset",)),
    Mutant("a quiet cost takes part in the blend", _RATES,
        "for values in found.values() if values.sum() > 0]",
        "for values in found.values() if values.sum() >= 0]",
        (f"{_AT_RATES}the_blend_takes_what_was_measured",)),
    Mutant("a reader finds half a file", _PUBLISH,
        "    fresh = target.with_name(f\".{target.name}.{os.getpid()}\")",
        "    fresh = target.with_name(target.name)",
        (f"{_AT_PUBLISH}a_reader_finds_the_old_file_or_the_new_one",)),
    Mutant("a document too large for a record is sent", _PUBLISH,
        "        if len(value) > MAX_RECORD_BYTES:",
        "        if False:",
        (f"{_AT_PUBLISH}a_document_too_large_for_a_record_is_said_before_anything_is_sent",)),
    Mutant("weights that no assignor takes are published", _WEIGHTS_JOB,
        "    decode(document)  # what no assignor would take is not published\n",
        "",
        (f"{_AT_PUBLISH}weights_that_no_assignor_would_take_are_not_written",)),
    Mutant("stale samples are not told", _WEIGHTS_JOB,
        "request.now - newest > timedelta(seconds=MAX_AGE_S)",
        "False",
        (f"{_AT_PUBLISH}samples_that_are_too_old_to_count_are_told",)),
    Mutant("a day's moves count decisions without a day", _TRANSFORMS,
        "    return outcome.where(\"dt is not null\").groupBy(\"group_id\", \"dt\", "
        "\"policy\").agg(*_moves())",
        "    return outcome.groupBy(\"group_id\", \"dt\", \"policy\").agg(*_moves())",
        (f"{_SPARK_HISTORY}placements_without_a_decision_are_told_and_not_counted",)),
    Mutant("lines of a compaction that died count", _STREAM_LINES,
        " if folder.exists(COMPACTED, f\"upto={n}\", MARKER)]",
        "]",
        (f"{_ON_STREAMS}crash_while_lines_are_compacted_loses_none_and_doubles_none",)),
    Mutant("on Spark a decision told twice counts as the later told", _FACTS,
        "F.min(told).alias(\"said\")",
        "F.max(told).alias(\"said\")",
        (f"{_PLAYED}a_recorded_week_is_the_same_week_on_spark",)),
    Mutant("on Spark a hole is an interval", _SPARK_WEIGHTS,
        "F.when(F.col(\"gap_ms\") <= HOLE * F.col(\"typical_ms\"), F.col(\"gap_ms\").cast(\"double\"))",
        "F.when(F.col(\"gap_ms\") > 0, F.col(\"gap_ms\").cast(\"double\"))",
        (f"{_LEARNT}spark_and_plain_python_learn_the_same_weights",)),
)

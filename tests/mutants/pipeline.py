"""Planted bugs of the pipeline: history, folders, sessions, and how commands end."""

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

_AT_CLUSTER = "tests/unit/pipeline/test_cluster.py::test_"
_AT_CONSOLE = "tests/unit/pipeline/test_console.py::test_"
_AT_DOCTOR = "tests/unit/pipeline/test_doctor.py::test_"
_AT_FAILURE = "tests/unit/pipeline/test_failure.py::test_"
_AT_SESSION = "tests/unit/pipeline/test_session.py::test_"
_AT_HERE = "tests/unit/pipeline/history/test_here.py::test_"
_AT_OUTPUT = "tests/unit/pipeline/history/test_output.py::test_"
_AT_PLOTS = "tests/unit/pipeline/history/test_plots.py::test_"
_SPARK_HISTORY = "tests/integration/spark/test_history.py::test_"
_ON_STREAMS = "tests/integration/spark/test_stream.py::test_"

MUTANTS = (
    Mutant(
        "certificates are not checked for the host's name",
        _CLUSTER,
        '"https") != ""',
        '"") != ""',
        (f"{_AT_CLUSTER}a_hosts_name_is_checked_unless_that_is_switched_off",),
    ),
    Mutant(
        "the environment goes behind the file",
        _CLUSTER,
        '            found[name.removeprefix(ENVIRONMENT).lower().replace("_", ".")] = value',
        '            found.setdefault(name.removeprefix(ENVIRONMENT).lower().replace("_", "."), value)',
        (f"{_AT_CLUSTER}the_environment_goes_before_the_file",),
    ),
    Mutant(
        "a quote in a password ends it",
        _CLUSTER,
        '    return text.replace("\\\\", "\\\\\\\\").replace(\'"\', \'\\\\"\')',
        "    return text",
        (f"{_AT_CLUSTER}spark_is_told_a_login_once_and_escaped",),
    ),
    Mutant(
        "Spark is told the password a second time, in the clear",
        _CLUSTER,
        " if name not in _OURS}",
        "}",
        (f"{_AT_CLUSTER}spark_is_told_a_login_once_and_escaped",),
    ),
    Mutant(
        "any text is an address",
        _CLUSTER,
        "        if not _is_address(server.strip()):",
        "        if False:",
        (f"{_AT_CLUSTER}what_is_no_address_is_refused_before_anybody_is_asked",),
    ),
    Mutant(
        "an unknown protocol is plaintext",
        _CLUSTER,
        "        if protocol not in _PROTOCOLS:",
        "        if False:",
        (f"{_AT_CLUSTER}an_unknown_protocol_is_refused_by_name",),
    ),
    Mutant(
        "a broken snapshot is called unfinished",
        _CONSOLE,
        '"BROKEN" if each.manifest else "unfinished"',
        '"unfinished"',
        (f"{_AT_CONSOLE}a_broken_snapshot_is_told_apart_from_an_unfinished_one",),
    ),
    Mutant(
        "the oldest rows of a long table are printed",
        _CONSOLE,
        "rows[-ROWS_PRINTED:]",
        "rows[:ROWS_PRINTED]",
        (f"{_AT_CONSOLE}of_a_long_table_the_newest_rows_are_printed",),
    ),
    Mutant(
        "an old Java is fit",
        _DOCTOR,
        "    if version < JAVA_AT_LEAST:",
        "    if False:",
        (f"{_AT_DOCTOR}old_java_fails",),
    ),
    Mutant(
        "a missing connector is fatal",
        _DOCTOR,
        "        WARNING,",
        "        FAILED,",
        (f"{_AT_DOCTOR}missing_jars_are_a_warning",),
    ),
    Mutant(
        "Java 1.8 is Java 1",
        _DOCTOR,
        'version "(?:1\\.)?(\\d+)',
        'version "(\\d+)',
        (f"{_AT_DOCTOR}java_versions_old_and_new",),
    ),
    Mutant(
        "workers of another Python pass",
        _DOCTOR,
        "    if there != here:",
        "    if False:",
        (f"{_AT_DOCTOR}workers_python_must_be_the_drivers",),
    ),
    Mutant(
        "nobody answering is final",
        _FAILURE,
        'return f"Spark: {last_words(text)}", TRY_AGAIN if _UNREACHABLE.search(text) else FAILED',
        'return f"Spark: {last_words(text)}", FAILED',
        (f"{_AT_FAILURE}each_error_has_the_code_that_says_whether_to_try_again",),
    ),
    Mutant(
        "an error's cause is not looked at",
        _FAILURE,
        '    return " ".join(names) + (f" {_lineage(cause)}" if cause is not None else "")',
        '    return " ".join(names)',
        (f"{_AT_FAILURE}each_error_has_the_code_that_says_whether_to_try_again",),
    ),
    Mutant(
        "a bug of ours is said in one line",
        _FAILURE,
        "    return None\n\n\ndef last_words",
        "    return str(error), FAILED\n\n\ndef last_words",
        (f"{_AT_FAILURE}what_is_our_own_bug_keeps_its_traceback",),
    ),
    Mutant(
        "Java's first words are told instead of the last",
        _FAILURE,
        'return (telling or lines or ["no reason given"])[-1 if telling else 0]',
        'return (lines or ["no reason given"])[0]',
        (f"{_AT_FAILURE}javas_last_cause_is_told_and_not_its_first_words",),
    ),
    Mutant(
        "jars of a download that broke off are used",
        _JARS,
        'if (folder / ".complete").exists() else []',
        "if folder.exists() else []",
        (f"{_AT_SESSION}jars_of_a_download_that_broke_off_are_none",),
    ),
    Mutant(
        "a job that is not there ends well",
        _JOBS,
        "file=sys.stderr)\n        return USAGE",
        "file=sys.stderr)\n        return 0",
        (f"{_AT_FAILURE}a_job_that_is_not_there_is_a_wrong_question",),
    ),
    Mutant(
        "an optional column is called with its mark",
        _SCHEMA,
        'Column(name.rstrip("?"), kind,',
        "Column(name, kind,",
        (f"{_AT_SESSION}a_question_mark_makes_a_column_optional_and_is_no_part_of_its_name",),
    ),
    Mutant(
        "days are those of the machine",
        _SESSION,
        '    "spark.sql.session.timeZone": "UTC",\n',
        "",
        (f"{_AT_SESSION}days_are_utc_days_on_every_machine",),
    ),
    Mutant(
        "a bucket is in the host name of a server of one's own",
        _SESSION,
        (
            "        found |= {\n"
            '            "spark.hadoop.fs.s3a.endpoint": endpoint,\n'
            '            "spark.hadoop.fs.s3a.path.style.access": "true",\n'
            "        }"
        ),
        '        found |= {"spark.hadoop.fs.s3a.endpoint": endpoint}',
        (f"{_AT_SESSION}a_server_of_ones_own_has_no_bucket_in_its_name",),
    ),
    Mutant(
        "local[4] shuffles as wide as the machine",
        _SESSION,
        "    if inside.isdigit():\n        return max(1, int(inside))\n",
        "",
        (f"{_AT_SESSION}a_local_session_shuffles_as_wide_as_it_runs",),
    ),
    Mutant(
        "a table is gone while it is replaced",
        _SINKS,
        "        if self.exists(*target):\n            self._rename(target, old)\n",
        "        self.remove(*target)\n",
        (f"{_AT_OUTPUT}a_file_that_is_replaced_is_there_all_the_while",),
    ),
    Mutant(
        "a run that failed leaves no mark",
        _SINKS,
        "        yield\n        self.remove(REPLACING)",
        "        try:\n            yield\n        finally:\n            self.remove(REPLACING)",
        (f"{_AT_OUTPUT}a_run_that_fails_leaves_its_mark",),
    ),
    Mutant(
        "a day that is gone stays",
        _SINKS,
        "        else:\n            self.remove(table, name)",
        "        else:\n            pass",
        (f"{_AT_OUTPUT}a_day_that_was_not_staged_is_gone",),
    ),
    Mutant(
        "days of another run stay staged",
        _SINKS,
        "        self.remove(STAGING, table)\n        columns = HISTORY[table]",
        "        columns = HISTORY[table]",
        (f"{_AT_OUTPUT}days_that_were_staged_before_are_not_published",),
    ),
    Mutant(
        "a decision told twice counts as the later told",
        _HERE,
        "        if key not in found or said < found[key][0]:",
        "        if True:",
        (f"{_AT_OUTPUT}of_decisions_that_disagree_under_one_id_the_earliest_stands",),
    ),
    Mutant(
        "standbys count as placements",
        _HERE,
        '        if row["role"] == "active":\n            mine, place',
        "        if True:\n            mine, place",
        (f"{_AT_OUTPUT}recoveries_and_placements_that_are_told_twice_count_once",),
    ),
    Mutant(
        "a member told twice is idle",
        _HERE,
        '    members = dict.fromkeys(member["member_id"] for member in decision["members"])',
        '    members = [member["member_id"] for member in decision["members"]]',
        (f"{_AT_OUTPUT}a_member_that_is_told_twice_is_one",),
    ),
    Mutant(
        "Faust's leader topic is a task",
        _HERE,
        ' for row in rows if not is_leader_topic(row["topic"])\n    }',
        " for row in rows\n    }",
        (f"{_AT_HERE}the_page_tells_each_rebalance_and_who_owns_what",),
    ),
    Mutant(
        "a counter that was reset takes away",
        _HERE,
        '        records[key] += max(0, row["records_in"])',
        '        records[key] += row["records_in"]',
        (f"{_AT_OUTPUT}a_counter_that_was_reset_takes_nothing_away",),
    ),
    Mutant(
        "a recovery told twice counts twice",
        _HERE,
        '    recovered = _distinct(tables["recovery"])',
        '    recovered = tables["recovery"]',
        (f"{_AT_OUTPUT}recoveries_and_placements_that_are_told_twice_count_once",),
    ),
    Mutant(
        "placements of lost decisions are not told",
        _HERE,
        "for key, mine in placed.items() if key not in decisions)",
        "for key, mine in placed.items() if key in decisions)",
        (f"{_AT_HERE}without_pyspark_installed_the_tables_are_the_models",),
    ),
    Mutant(
        "two runs share what they lay beside the folder",
        _HERE,
        "    with only_writer(options.out):\n        return _publish(options)\n",
        "    return _publish(options)\n",
        (f"{_AT_HERE}of_two_runs_into_one_folder_the_second_says_so_and_the_first_is_whole",),
    ),
    Mutant(
        "a callable that is no policy ends simulate in a traceback",
        "faust_assigner/pipeline/simulate/policies.py",
        "            _try_out(name, policy)\n",
        "            pass\n",
        (
            "tests/unit/pipeline/simulate/test_settings.py"
            "::test_what_is_no_policy_is_refused_in_one_line[os:getcwd-TypeError]",
        ),
    ),
    Mutant(
        "a broken report.json stops every later run",
        _OUTPUT,
        "    except (ValueError, KeyError, TypeError):\n        return None\n    now",
        "    except KeyError:\n        return None\n    now",
        (f"{_AT_OUTPUT}a_report_that_is_broken_is_replaced",),
    ),
    Mutant(
        "days are taken as unchanged after a run that died",
        _OUTPUT,
        '    if folder.exists(REPLACING) or not folder.exists("report.json") or not '
        "folder.exists(table):\n"
        "        return None\n",
        '    if not folder.exists("report.json") or not folder.exists(table):\n'
        "        return None\n",
        (f"{_AT_OUTPUT}days_that_a_dead_run_replaced_are_written_again",),
    ),
    Mutant(
        "the page is written while tables are replaced",
        _OUTPUT,
        "        folder.stage_file(name, content)\n    with folder.replacing():\n",
        "        pass\n    with folder.replacing():\n"
        "        for name, content in files.items():\n            folder.stage_file(name, content)\n",
        (f"{_AT_OUTPUT}a_disk_that_is_full_leaves_the_history_of_the_run_before",),
    ),
    Mutant(
        "a picture of a table that is empty now stays",
        _OUTPUT,
        "            if name not in pictures:\n",
        "            if False:\n",
        (f"{_AT_OUTPUT}a_picture_of_a_table_that_is_empty_now_goes",),
    ),
    Mutant(
        "a day's worst share is its last",
        _PLOTS,
        'if partition not in worst or row["share"] > worst[partition]["share"]:',
        "if True:",
        (f"{_AT_PLOTS}of_a_partition_its_worst_day_is_drawn",),
    ),
    Mutant(
        "labels lie upon each other",
        _PLOTS,
        "    every = -(-len(labels) // room)",
        "    every = 1",
        (f"{_AT_PLOTS}labels_do_not_overlap",),
    ),
    Mutant(
        "the oldest rebalances lead",
        _REPORT,
        "        return list(reversed(rows))",
        "        return list(rows)",
        (f"{_AT_OUTPUT}the_newest_rebalance_leads_the_page_and_times_are_utc",),
    ),
    Mutant(
        "hidden refused lines are not counted",
        _REPORT,
        'max(len(rows), report.refused if name == "quarantine" else 0)',
        "len(rows)",
        (f"{_AT_OUTPUT}refused_lines_that_are_not_shown_are_counted",),
    ),
    Mutant(
        "a span swallows the number behind it",
        _REPORT,
        "if found and number == found[-1][1] + 1:",
        "if found and number <= found[-1][1] + 2:",
        (f"{_AT_OUTPUT}partition_numbers_are_told_as_spans",),
    ),
    Mutant(
        "a day's moves count decisions without a day",
        _TRANSFORMS,
        '    return outcome.where("dt is not null").groupBy("group_id", "dt", '
        '"policy").agg(*_moves())',
        '    return outcome.groupBy("group_id", "dt", "policy").agg(*_moves())',
        (f"{_SPARK_HISTORY}every_table_is_what_the_model_says",),
    ),
    Mutant(
        "lines of a compaction that died count",
        _STREAM_LINES,
        (
            "    whole = [\n"
            "        n\n"
            '        for n in _numbers(folder, COMPACTED, "upto=")\n'
            '        if folder.exists(COMPACTED, f"upto={n}", MARKER)\n'
            "    ]"
        ),
        '    whole = [n for n in _numbers(folder, COMPACTED, "upto=")]',
        (f"{_ON_STREAMS}crash_while_lines_are_compacted_loses_none_and_doubles_none",),
    ),
)

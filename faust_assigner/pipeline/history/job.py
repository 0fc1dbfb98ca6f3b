"""The ``history`` job: read ledgers, compute, publish; once, or as a stream."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from faust_assigner.pipeline.cluster import client_properties
from faust_assigner.pipeline.jars import cached_connector_jars
from faust_assigner.pipeline.ledgers.period import Period
from faust_assigner.pipeline.ledgers.refusals import Tolerance
from faust_assigner.pipeline.one_writer import only_writer
from faust_assigner.pipeline.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from faust_assigner.pipeline.history.report import Report
    from faust_assigner.pipeline.sinks import Folder


@dataclass(frozen=True)
class HistoryOptions:
    """What a person asks of ``history``; ``every_s`` turns the stream from a visit into a watch."""

    ledgers: tuple[str, ...]
    out: str
    stream: bool = False
    every_s: float | None = None
    connector: str = "auto"
    #: Fail on a ledger without a line that counts; None: where a history stands already.
    fail_if_empty: bool | None = None
    max_refused: Tolerance = field(default_factory=Tolerance)
    #: Kafka's client properties, for ledgers that are topics.
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    period: Period = field(default_factory=Period)
    #: Maven packages for the session, as ``spark-submit`` takes them.
    packages: tuple[str, ...] = ()


def check(options: HistoryOptions) -> None:
    """Say what is wrong with ``options`` before a session is started for them.

    Raises:
        LedgerPathError: a ledger is not there.
        ConfigError: a topic's URL is not one.
        UnknownTopicError, UnreachableError, RefusedByKafka: what its cluster says.
    """
    from faust_assigner.pipeline.ledgers.files import find_files
    from faust_assigner.pipeline.ledgers.topics import extents_now, split_sources

    paths, topics = split_sources(options.ledgers, options.properties)
    for topic in topics:
        extents_now(topic)
    find_files(paths)


def run(spark: SparkSession, options: HistoryOptions) -> Report:
    """Write the history of ``options.ledgers`` to ``options.out``; return what it says.

    Raises:
        LedgerPathError: a ledger is not there.
        EmptyLedger: no line counts, and the options do not take that.
        TooManyRefused: more lines were refused than the options take.
        FolderInUse: another run writes there, or watches.
    """
    with only_writer(options.out):
        return _run(spark, options)


def _run(spark: SparkSession, options: HistoryOptions) -> Report:
    from faust_assigner.pipeline.history.on_spark import publish
    from faust_assigner.pipeline.ledgers.sources import read_ledger
    from faust_assigner.pipeline.sinks import Folder

    folder = Folder(spark, options.out)
    if options.stream:
        return _run_stream(spark, options, folder)
    lines = read_ledger(
        spark,
        options.ledgers,
        connector=options.connector,
        properties=options.properties,
        period=options.period,
    )
    return publish(lines, folder, options)


def _run_stream(spark: SparkSession, options: HistoryOptions, folder: Folder) -> Report:
    from faust_assigner.pipeline.history import stream
    from faust_assigner.pipeline.history.on_spark import publish
    from faust_assigner.pipeline.history.output import standing
    from faust_assigner.pipeline.history.stream_lines import taken

    def report() -> Report:
        return publish(options.period.on_spark(taken(spark, folder)), folder, options)

    if options.every_s is not None:
        stream.take_forever(
            spark,
            options.ledgers,
            folder,
            connector=options.connector,
            properties=options.properties,
            every_s=options.every_s,
            then=lambda: print_line(report()),
        )
    else:
        news = stream.take_available(
            spark,
            options.ledgers,
            folder,
            connector=options.connector,
            properties=options.properties,
        )
        stands = None if news else standing(folder)
        if stands is not None:
            return stands
    return report()


def print_line(report: Report) -> None:
    """One line of figures, for logs."""
    print("; ".join(f"{value} {name}" for name, value in report.headline()), flush=True)


def session_for(options: HistoryOptions, master: str | None) -> SparkSession:
    """A session that can read what ``options`` name: with the connector's jars when a topic is among it."""
    wants_topics = any(ledger.startswith("kafka://") for ledger in options.ledgers)
    jars = cached_connector_jars() if wants_topics and options.connector != "python" else []
    return spark_session(master, "faust-assigner history", jars=jars, packages=options.packages)


def main(arguments: Sequence[str]) -> int:
    """``spark-submit … jobs.py history --ledger PATH [--ledger PATH …] --out DIR [--stream]``."""
    parser = argparse.ArgumentParser(prog="history", description=__doc__)
    parser.add_argument(
        "--ledger", action="append", required=True, help="file, folder, glob, kafka://"
    )
    parser.add_argument("--out", required=True, help="folder for tables and report")
    parser.add_argument(
        "--stream", action="store_true", help="take only what is new, with a checkpoint"
    )
    parser.add_argument("--every", type=float, help="with --stream: go on, every so many seconds")
    parser.add_argument("--connector", choices=("auto", "spark", "python"), default="auto")
    parser.add_argument(
        "--fail-if-empty",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="fail when no line counts; default: where a history stands already",
    )
    parser.add_argument(
        "--max-refused", help="fail when more lines are refused: a number or a share (0.5%%)"
    )
    parser.add_argument("--since", help="only what happened from then on: a day, a time, or 7d")
    parser.add_argument("--until", help="only what happened before")
    parser.add_argument("--config", help="Kafka's client properties, a file")
    parser.add_argument("--master", default=None, help="default: what spark-submit says")
    parser.add_argument("--json", action="store_true", help="print report.json")
    given = parser.parse_args(arguments)
    options = HistoryOptions(
        tuple(given.ledger),
        given.out,
        given.stream,
        given.every,
        given.connector,
        given.fail_if_empty,
        Tolerance.parse(given.max_refused),
        client_properties(given.config, os.environ),
        Period.parse(given.since, given.until, now=datetime.now(UTC)),
    )
    check(options)
    spark = session_for(options, given.master)
    try:
        report = run(spark, options)
    finally:
        spark.stop()
    if given.json:
        json.dump(json.loads(report.to_json()), sys.stdout)
    else:
        print_line(report)
    return 0

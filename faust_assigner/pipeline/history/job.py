"""The ``history`` command: read ledgers, merge them into the store, write the page; once or repeatedly."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from faust_assigner.pipeline.history import output
from faust_assigner.pipeline.history.refused import RefusedLines, joined, table_of
from faust_assigner.pipeline.history.store import Manifest, Store
from faust_assigner.pipeline.jars import cached_connector_jars
from faust_assigner.pipeline.ledgers.period import Period
from faust_assigner.pipeline.ledgers.progress import Visit, news, whole
from faust_assigner.pipeline.ledgers.refusals import Refused, Tolerance
from faust_assigner.pipeline.one_writer import only_writer
from faust_assigner.pipeline.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from faust_assigner.pipeline.history.merge import Merged
    from faust_assigner.pipeline.history.report import Report


@dataclass(frozen=True)
class HistoryOptions:
    """The options of ``history``; with ``every_s`` the command repeats its visit until it is stopped."""

    ledgers: tuple[str, ...]
    out: str
    #: Read only the lines that were added since the last run with this option.
    stream: bool = False
    every_s: float | None = None
    connector: str = "auto"
    #: Fail on a ledger without accepted lines; None: if a history exists already or lines were refused.
    fail_if_empty: bool | None = None
    max_refused: Tolerance = field(default_factory=Tolerance)
    #: Kafka's client properties, for ledgers that are topics.
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    period: Period = field(default_factory=Period)
    #: Maven packages for the session, in the notation of ``spark-submit``.
    packages: tuple[str, ...] = ()


class Work(Protocol):
    """The parsed lines of a visit, in this process or on Spark."""

    @property
    def lines(self) -> RefusedLines:
        """The refused lines and the number of all lines."""

    def merge(self, store: Store, manifest: Manifest) -> Merged:
        """Merge each day that the visit touches."""

    def close(self) -> None:
        """Release the parsed lines."""


def check(options: HistoryOptions) -> None:
    """Check ``options`` before a session is started for them.

    Raises:
        LedgerPathError: a ledger is missing.
        ConfigError: a topic's URL is invalid, or the folder's history is of another version.
        UnknownTopicError, UnreachableError, RefusedByKafka: a topic's cluster returned an error or no answer.
    """
    from faust_assigner.pipeline.ledgers.files import find_files
    from faust_assigner.pipeline.ledgers.topic_source import split_sources, topic_now

    paths, topics = split_sources(options.ledgers, options.properties)
    for topic in topics:
        topic_now(topic)
    find_files(paths)
    Store(options.out).load()


def run(spark: SparkSession, options: HistoryOptions) -> Report:
    """Merge ``options.ledgers`` into the history in ``options.out``; return the new report.

    Raises:
        LedgerPathError: a ledger is missing.
        EmptyLedger: no line was accepted, and the options do not allow this.
        TooManyRefused: more lines were refused than the options accept.
        FolderInUse: another run uses the folder.
    """
    from faust_assigner.pipeline.history.on_spark import OnSpark

    return _run(options, lambda visit: OnSpark(spark, visit, options))


def run_here(options: HistoryOptions) -> Report:
    """:func:`run` without Spark."""
    from faust_assigner.pipeline.history.here import Here

    return _run(options, lambda visit: Here(visit, options))


def _run(options: HistoryOptions, work: Callable[[Visit], Work]) -> Report:
    with only_writer(options.out):
        check(options)
        report = _visit(options, work)
        while options.every_s is not None:
            print_line(report)
            time.sleep(options.every_s)
            report = _visit(options, work)
        return report


def _visit(options: HistoryOptions, work: Callable[[Visit], Work]) -> Report:
    store = Store(options.out)
    before = store.load()
    if options.stream:
        visit = news(options.ledgers, before.sources, options.properties)
        if not visit and before.generation:
            return output.publish(store, before, options)
    else:
        visit = whole(options.ledgers, options.period, options.properties)
    held = work(visit)
    try:
        after = _merge(store, before, visit, held, options)
    finally:
        held.close()
    return output.publish(store, after, options)


def _merge(
    store: Store, before: Manifest, visit: Visit, work: Work, options: HistoryOptions
) -> Manifest:
    lines = work.lines
    refused = lines.counts
    rows = lines.rows(visit)
    if options.stream:
        refused = Refused(refused.accepted, len(rows), refused.first)
    output.check(refused, before, options)
    store.begin(before)
    merged = work.merge(store, before)
    stand = store.read_refused(before)
    kept = joined(stand, rows) if options.stream else table_of(rows)
    sources: Mapping[str, Any] = visit.state(lines.lines()) if options.stream else before.sources
    is_same = not merged.days and kept.equals(stand) and sources == before.sources
    if before.generation and is_same:
        store.abandon()
        return before
    count = kept.num_rows if options.stream else refused.lines
    return store.commit(before, merged.days, refused=(kept, count), sources=sources)


def print_line(report: Report) -> None:
    """Print the headline's figures in one line, for logs."""
    print("; ".join(f"{value} {name}" for name, value in report.headline()), flush=True)


def session_for(options: HistoryOptions, master: str | None) -> SparkSession:
    """A session that can read the ledgers of ``options``: for topics with the connector's jars, if cached."""
    wants_topics = any(ledger.startswith("kafka://") for ledger in options.ledgers)
    jars = cached_connector_jars() if wants_topics and options.connector != "python" else []
    return spark_session(master, "faust-assigner history", jars=jars, packages=options.packages)

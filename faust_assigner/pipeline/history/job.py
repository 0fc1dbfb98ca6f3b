"""The ``history`` command: read ledgers, merge them into the store, write the page; once or repeatedly."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from faust_assigner.errors import ConfigError
from faust_assigner.pipeline.history import output
from faust_assigner.pipeline.history.lakehouse import PARQUET, LakehouseTables, settings_of
from faust_assigner.pipeline.history.merge import tables_again
from faust_assigner.pipeline.history.options import HistoryOptions
from faust_assigner.pipeline.history.quality import gate_text
from faust_assigner.pipeline.history.refused import joined, table_of
from faust_assigner.pipeline.history.store import DERIVED, Manifest, Store
from faust_assigner.pipeline.jars import cached_connector_jars
from faust_assigner.pipeline.ledgers.progress import Visit, news, plan_full_visit
from faust_assigner.pipeline.ledgers.refusals import Refused
from faust_assigner.pipeline.one_writer import only_writer
from faust_assigner.pipeline.progress import Progress, ui_of
from faust_assigner.pipeline.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from faust_assigner.pipeline.history.here import Here
    from faust_assigner.pipeline.history.on_spark import OnSpark
    from faust_assigner.pipeline.history.report import Report

    #: The parsed lines of a visit, in this process or on Spark.
    Work: TypeAlias = Here | OnSpark


def check(options: HistoryOptions) -> None:
    """Check ``options`` before a Spark session is started.

    Raises:
        LedgerPathError: a ledger is missing.
        ConfigError: a topic's URL is invalid, or another version wrote the folder's history.
        UnknownTopicError, UnreachableError, RefusedByKafka: a topic's cluster returned an error or no answer.
    """
    from faust_assigner.pipeline.ledgers.files import find_files
    from faust_assigner.pipeline.ledgers.topic_source import split_sources, topic_now

    paths, topics = split_sources(options.ledgers, options.properties)
    for topic in topics:
        topic_now(topic)
    find_files(paths)
    Store(options.out).load()


def run(spark: SparkSession, options: HistoryOptions, progress: Progress | None = None) -> Report:
    """Merge ``options.ledgers`` into the history in ``options.out``; return the new report.

    Raises:
        LedgerPathError: a ledger is missing.
        EmptyLedger: no line was accepted, and the options do not allow this.
        TooManyRefused: more lines were refused than the options accept.
        FolderInUse: another run uses the folder.
        ConfigError: the session cannot write the format of the options.
    """
    from faust_assigner.pipeline.history.on_spark import OnSpark

    progress = progress or Progress()
    progress.ui = ui_of(spark)
    tables = None
    if options.format != PARQUET:
        tables = LakehouseTables(spark, Store(options.out), options.format)
        tables.check()
    return _run(options, progress, lambda visit: OnSpark(spark, visit, options), tables)


def run_here(options: HistoryOptions, progress: Progress | None = None) -> Report:
    """Do the work of :func:`run` without Spark; raise ConfigError for another format than Parquet."""
    from faust_assigner.pipeline.history.here import Here

    if options.format != PARQUET:
        raise ConfigError(f"--format {options.format} needs Spark, so --no-spark must be left out")
    progress = progress or Progress()
    return _run(options, progress, lambda visit: Here(visit, options, progress), None)


def _run(
    options: HistoryOptions,
    progress: Progress,
    work: Callable[[Visit], Work],
    tables: LakehouseTables | None,
) -> Report:
    with only_writer(options.out):
        check(options)
        while True:
            store = Store(options.out)
            manifest, refused = _visit(store, options, progress, work)
            if tables is not None:
                progress.enter(f"writing the {tables.format.title} tables")
                tables.publish(manifest)
            progress.enter("writing the page")
            report = output.publish(store, manifest, options, refused)
            if options.every_s is None:
                return report
            print_line(report)
            progress.enter("waiting")
            time.sleep(options.every_s)


def _visit(
    store: Store, options: HistoryOptions, progress: Progress, work: Callable[[Visit], Work]
) -> tuple[Manifest, Refused]:
    """Read the unread lines and merge them; return the new manifest and the counts of these lines."""
    progress.enter("listing the ledgers")
    before = _current(store, progress)
    if options.stream:
        visit = news(options.ledgers, before.sources, options.properties)
        if not visit and before.generation:
            store.tidy(before)
            return before, Refused()
    else:
        visit = plan_full_visit(options.ledgers, options.period, options.properties)
    progress.enter("reading the lines")
    held = work(visit)
    try:
        return _merge(store, before, visit, held, options, progress)
    finally:
        held.close()


def _current(store: Store, progress: Progress) -> Manifest:
    """Return the current manifest; recompute the daily tables first if an earlier version wrote them."""
    before = store.load()
    progress.days_kept = len(before.dates)
    if not before.generation or before.derived == DERIVED:
        return before
    progress.enter("computing the daily tables again, for a new version")
    store.begin(before)
    days = tables_again(store, before)
    kept = (store.read_refused(before), before.refused)
    return store.commit(before, days, refused=kept, sources=before.sources)


def _merge(
    store: Store,
    before: Manifest,
    visit: Visit,
    work: Work,
    options: HistoryOptions,
    progress: Progress,
) -> tuple[Manifest, Refused]:
    """Merge the lines that this run (the visit) reads into the store.

    Return the new manifest, and the counts of these lines.
    """
    lines = work.lines
    refused = lines.counts
    rows = lines.rows(visit)
    if options.stream:
        refused = Refused(refused.accepted, len(rows), refused.first)
    progress.follow(refused)
    output.check(refused, before, options)
    progress.enter("merging days")
    store.begin(before)
    merged = work.merge(store, before)
    progress.days_touched = merged.touched
    stand = store.read_refused(before)
    kept = joined(stand, rows) if options.stream else table_of(rows)
    sources: Mapping[str, object] = visit.state(lines.lines()) if options.stream else before.sources
    is_same = not merged.days and kept.equals(stand) and sources == before.sources
    if before.generation and is_same:
        store.abandon()
        return before, refused
    count = kept.num_rows if options.stream else refused.lines
    after = store.commit(before, merged.days, refused=(kept, count), sources=sources)
    progress.days_kept = len(after.dates)
    return after, refused


def print_line(report: Report) -> None:
    """Print the headline's figures and the failed limits (gates) in one line, for logs."""
    parts = [f"{value} {name}" for name, value in report.headline()]
    if report.quality is not None:
        parts += [gate_text(gate) for gate in report.quality.gates if not gate["passed"]]
    print("; ".join(parts), flush=True)


def session_for(options: HistoryOptions, master: str | None) -> SparkSession:
    """Return a session for the ledgers of ``options``.

    If a ledger is a topic, the session has the connector's cached jars.
    """
    wants_topics = any(ledger.startswith("kafka://") for ledger in options.ledgers)
    jars = cached_connector_jars() if wants_topics and options.connector != "python" else []
    return spark_session(
        master,
        "faust-assigner history",
        jars=jars,
        packages=options.packages,
        settings=settings_of(options.format),
    )

"""``history --format delta`` in a session of its own: ``make spark-matrix SPARKS=delta``.

Two visits of a stream; the second one is interrupted between two tables, and a third one without new lines
completes it. Prints one line of JSON: "equal", or the first difference. A session has its jars from its
start, so this cannot run in the session that the other tests share.
"""

from __future__ import annotations

import contextlib
import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

from faust_assigner.pipeline.history import delta, plots
from faust_assigner.pipeline.history.delta import DELTA, DeltaTables, settings_of
from faust_assigner.pipeline.history.job import HistoryOptions, run
from faust_assigner.pipeline.history.store import TABLES, Store
from faust_assigner.pipeline.history.tables import with_day
from faust_assigner.pipeline.session import spark_session
from tests.integration.spark.ledgers import Ledger, bad_lines, random_rows

#: A session for small tables that starts and plans fast.
SMALL = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
#: Structs and maps, a fact with a time, a table of the page. The other tables have the same types.
FEW = {name: TABLES[name] for name in ("decisions", "recoveries", "moves")}


class Interrupted(Exception):
    """The end of a visit between two tables."""


def lives(spark: Any, folder: Path) -> str:
    """The visits; "" or the first difference."""
    ledger = Ledger(folder / "ledger")
    lines = [line for seed in range(2) for line in random_rows(f"g{seed}", seed)]
    half = len(lines) // 2
    random.Random(1).shuffle(lines)
    ledger.write("a.jsonl", lines[:half])
    options = HistoryOptions((str(ledger.folder),), str(folder / "out"), stream=True, format=DELTA)
    run(spark, options)
    store = Store(options.out)
    tables = DeltaTables(spark, store)
    if wrong := difference(spark, tables, store):
        return f"after the first visit: {wrong}"
    ledger.write("b.jsonl", [*lines[half:], *bad_lines()])
    _interrupted(spark, options)
    if not difference(spark, tables, store):
        return "the visit was interrupted, but its tables are complete"
    run(spark, options)
    if wrong := difference(spark, tables, store):
        return f"after the interrupted visit: {wrong}"
    after = commits(spark, tables)
    run(spark, options)
    if commits(spark, tables) != after or set(after.values()) != {2}:
        return f"each of two visits makes one commit of each table, found {after}"
    return ""


def _interrupted(spark: Any, options: HistoryOptions) -> None:
    whole, done = DeltaTables._bring, []

    def bring(tables: DeltaTables, table: str, *given: Any) -> None:
        if done:
            raise Interrupted
        whole(tables, table, *given)
        done.append(table)

    DeltaTables._bring = bring  # type: ignore[method-assign, assignment]
    with contextlib.suppress(Interrupted):
        run(spark, options)
    DeltaTables._bring = whole  # type: ignore[method-assign]


def difference(spark: Any, tables: DeltaTables, store: Store) -> str:
    """The first table whose rows are not those of the store; "" if all are equal."""
    manifest = store.load()
    for table in FEW:
        wanted = [
            _text(row)
            for day in manifest.dates
            for row in with_day(store.read(table, day, manifest.days[day]), day)
        ]
        rows = spark.table(tables.name(table)).collect()
        found = [_text(row.asDict(recursive=True)) for row in rows]
        if not wanted or sorted(found) != sorted(wanted):
            return f"{table}: {len(found)} rows for {len(wanted)}"
    refused = spark.table(tables.name("quarantine")).count()
    return "" if refused == store.read_refused(manifest).num_rows else "the refused lines differ"


def _text(row: Any) -> str:
    """A row in one form: Arrow has times with a zone and maps as pairs, Spark has neither."""
    return json.dumps(
        _plain(row), sort_keys=True, default=lambda value: str(value).removesuffix("+00:00")
    )


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        found = {name: _plain(each) for name, each in value.items()}
        if "config" in value:
            found["config"] = sorted(map(list, dict(value["config"]).items()))
        return found
    return [_plain(each) for each in value] if isinstance(value, list) else value


def commits(spark: Any, tables: DeltaTables) -> dict[str, int]:
    """The number of commits of each table."""
    found = {}
    for table in (*FEW, "quarantine"):
        found[table] = spark.sql(f"DESCRIBE HISTORY {tables.name(table)}").count()
    return found


def main(jars: str) -> None:
    """Print the version of Spark and the outcome."""
    plots.draw = lambda report: {}  # type: ignore[assignment]
    delta.TABLES = FEW  # type: ignore[assignment]
    settings = {**settings_of(DELTA), **SMALL}
    spark = spark_session("local[2]", "delta", jars=jars.split(","), settings=settings)
    with tempfile.TemporaryDirectory(prefix="faust-assigner-delta-") as folder:
        said = lives(spark, Path(folder))
    print(json.dumps({"version": spark.version, "said": said or "equal"}))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])

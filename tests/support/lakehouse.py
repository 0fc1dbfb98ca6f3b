"""``history --format`` in a session with the format's jars: ``make spark-matrix SPARKS="delta
iceberg"``.

Two visits of a stream. The second visit is interrupted between two tables, and a third visit
without new lines completes it. Iceberg's tables go into a catalog of the session, too. Prints one
line of JSON: "equal", or the first difference. A session has its jars from its start, so this
cannot run in the session that the other tests share.
"""

from __future__ import annotations

import contextlib
import json
import random
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from faust_assigner.errors import ConfigError
from faust_assigner.pipeline.history import plots
from faust_assigner.pipeline.history.job import run
from faust_assigner.pipeline.history.lakehouse import (
    CATALOG,
    DELTA,
    ICEBERG,
    LakehouseTables,
    settings_of,
)
from faust_assigner.pipeline.history.options import HistoryOptions
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
ALL = (*TABLES, "quarantine")
#: Spark writes a list of more than ten days differently from a shorter list.
MANY_DAYS = 11


class Interrupted(Exception):
    """An interrupted visit, between two tables."""


def lives(spark: Any, folder: Path, kind: str) -> str:
    """Run the visits; return "" or the first difference."""
    ledger = Ledger(folder / "ledger")
    lines = [line for seed in range(2) for line in random_rows(f"g{seed}", seed, decisions=50)]
    lines += bad_lines()
    half = len(lines) // 2
    random.Random(1).shuffle(lines)
    ledger.write("a.jsonl", lines[:half])
    options = HistoryOptions((str(ledger.folder),), str(folder / "out"), stream=True, format=kind)
    run(spark, options)
    store = Store(options.out)
    tables = LakehouseTables(spark, store, kind)
    if wrong := difference(spark, tables, store):
        return f"after the first visit: {wrong}"
    before = store.load().days
    ledger.write("b.jsonl", lines[half:])
    _interrupted(spark, options)
    if not difference(spark, tables, store):
        return "the visit was interrupted, but its tables are complete"
    run(spark, options)
    if wrong := difference(spark, tables, store):
        return f"after the interrupted visit: {wrong}"
    if sum(entry != before.get(day) for day, entry in store.load().days.items()) < MANY_DAYS:
        return "the second visit changed too few days"
    after = commits(spark, tables, kind)
    run(spark, options)
    if commits(spark, tables, kind) != after or set(after.values()) != {2}:
        return f"each of two visits makes one commit of each table, found {after}"
    return in_a_catalog(spark, folder, options) if kind == ICEBERG else ""


def in_a_catalog(spark: Any, folder: Path, options: HistoryOptions) -> str:
    """Write the tables into the session's own catalog, and refuse a second history there."""
    setting = f"spark.sql.catalog.{CATALOG}"
    spark.conf.set(f"{setting}.type", "hadoop")
    spark.conf.set(f"{setting}.warehouse", str(folder / "warehouse"))
    spark.conf.set(f"{setting}.default-namespace", "shop.history")
    spark.conf.set(setting, "org.apache.iceberg.spark.SparkCatalog")
    run(spark, options)
    store = Store(options.out)
    tables = LakehouseTables(spark, store, ICEBERG)
    if wrong := difference(spark, tables, store):
        return f"in the session's catalog: {wrong}"
    if not (folder / "warehouse" / "shop" / "history" / "moves").is_dir():
        return "the tables are not in the warehouse of the session's catalog"
    try:
        run(spark, replace(options, out=str(folder / "other")))
    except ConfigError as error:
        return "" if "another history" in str(error) else f"another reason: {error}"
    return "a second history replaced the tables of the first one"


def _interrupted(spark: Any, options: HistoryOptions) -> None:
    whole, done = LakehouseTables._replace_changed_days, []

    def bring(tables: LakehouseTables, table: str, *given: Any) -> None:
        if done:
            raise Interrupted
        whole(tables, table, *given)
        done.append(table)

    LakehouseTables._replace_changed_days = bring  # type: ignore[method-assign, assignment]
    with contextlib.suppress(Interrupted):
        run(spark, options)
    LakehouseTables._replace_changed_days = whole  # type: ignore[method-assign]


def difference(spark: Any, tables: LakehouseTables, store: Store) -> str:
    """Return the first table whose rows differ from the store's, or "". Every table must have rows."""
    manifest = store.load()
    for table in ALL:
        if table == "quarantine":
            rows = store.read_refused(manifest).to_pylist()
        else:
            days = ((day, manifest.days[day]) for day in manifest.dates)
            rows = [r for day, entry in days for r in with_day(store.read(table, day, entry), day)]
        found = spark.table(tables.format.name(table)).collect()
        wanted = sorted(map(_text, rows))
        if not wanted or sorted(_text(row.asDict(recursive=True)) for row in found) != wanted:
            return f"{table}: {len(found)} rows for {len(wanted)}"
    return ""


def _text(row: Any) -> str:
    """A row in a common form: Arrow has times with a zone and maps as pairs, Spark has neither."""
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


def commits(spark: Any, tables: LakehouseTables, kind: str) -> dict[str, int]:
    """Return the number of commits of each table."""
    names = {table: tables.format.name(table) for table in ALL}
    if kind == DELTA:
        return {
            table: spark.sql(f"DESCRIBE HISTORY {name}").count() for table, name in names.items()
        }
    return {table: spark.table(f"{name}.snapshots").count() for table, name in names.items()}


def main(kind: str, jars: str) -> None:
    """Print the version of Spark and the outcome."""
    plots.draw = lambda report: {}  # type: ignore[assignment]
    settings = {**settings_of(kind), **SMALL}
    spark = spark_session("local[2]", "lakehouse", jars=jars.split(","), settings=settings)
    with tempfile.TemporaryDirectory(prefix="faust-assigner-lakehouse-") as folder:
        said = lives(spark, Path(folder), kind)
    print(json.dumps({"version": spark.version, "said": said or "equal"}))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])

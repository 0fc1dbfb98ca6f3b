"""A ledger that changes between runs of a history, and the resulting rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from faust_assigner.pipeline.history.job import run_here
from faust_assigner.pipeline.history.options import HistoryOptions
from faust_assigner.pipeline.history.store import PENDING, TABLES, Manifest, Store, table_schema
from tests.integration.spark.ledgers import ASSIGNMENT, DECISION, Ledger, Line, good

DAY, NEXT = "2026-11-21", "2026-11-22"


def at(day: str, hour: int, moved: int = 1, **more: Any) -> list[Line]:
    """Return a decision of the hour, and its placements."""
    identity = {"decision_id": f"{day}-{hour}"}
    said = {**DECISION, **identity, "ts": f"{day}T{hour:02}:00:00.000Z", **more}
    return [good(said), *(good({**ASSIGNMENT, **identity, "partition": n}) for n in range(moved))]


def stored(folder: Path, days: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]) -> Store:
    """Return a store with these rows by day and table, and 12 refused lines."""
    store = Store(str(folder))
    entries = {}
    for day, facts in days.items():
        tables = {}
        for fact, rows in facts.items():
            schema = table_schema(fact)
            empty: dict[str, Any] = dict.fromkeys(schema.names)
            tables[fact] = pa.Table.from_pylist([{**empty, **row} for row in rows], schema=schema)
        entries[day] = store.write(day, tables)
    nothing = store.read_refused(Manifest())
    store.commit(Manifest(), entries, refused=(nothing, 12), sources={})
    return store


class History:
    """A ledger that changes between the runs of a history."""

    def __init__(self, folder: Path, name: str = "out", **options: Any) -> None:
        self.ledger = Ledger(folder / "ledger")
        self.out = folder / name
        self.options = HistoryOptions((str(self.ledger.folder),), str(self.out), **options)

    def run(self, *lines: Line) -> Any:
        """Run over these lines alone; return the report."""
        self.ledger.write("w.jsonl", lines)
        return run_here(self.options)

    def tables(self) -> dict[str, list[Any]]:
        """Return all rows of all tables, by the manifest."""
        store = Store(str(self.out))
        manifest = store.load()
        found = {
            f"{table} {day}": store.read(table, day, manifest.days[day]).to_pylist()
            for table in TABLES
            for day in manifest.days
        }
        return {name: rows for name, rows in found.items() if rows}

    def files(self) -> dict[str, list[Any]]:
        """Return all rows of all tables, as found by a reader of the folders."""
        found: dict[str, list[Any]] = {}
        for path in sorted(self.out.glob("*/dt=*/*.parquet")):
            name = f"{path.parts[-3]} {path.parts[-2].removeprefix('dt=')}"
            found[name] = found.get(name, []) + pq.ParquetFile(path).read().to_pylist()
        return found

    def daily(self, table: str) -> list[Any]:
        """Return a table's rows over the days, in order."""
        return [
            row
            for name, rows in sorted(self.tables().items())
            if name.partition(" ")[0] == table and PENDING not in name
            for row in rows
        ]

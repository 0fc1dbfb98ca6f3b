"""The store of the history: a Parquet file for each table and day, and a manifest of the valid files.

A run writes new files, then replaces ``manifest.json`` in one step, then removes the files that it replaced.
If a run dies before it replaces the manifest, the store is unchanged. Data files are never overwritten.

``OUT/manifest.json``                       the names of the valid files
``OUT/TABLE/dt=DAY/ID.parquet``             a day of a table (``schema.FACTS`` and ``schema.DAILY``)
``OUT/quarantine/ID.parquet``               the refused lines
``OUT/_pending/TABLE-ID.parquet``           placements and recoveries whose decision is still missing
``OUT/_index/MONTH-ID.parquet``             the day of each decision

While ``OUT/_REPLACING`` exists, readers of a whole folder (``pandas.read_parquet("OUT/movement")``) may see
two versions of a day. :meth:`Store.read` follows the manifest and always sees one version.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc

from faust_assigner.errors import ConfigError
from faust_assigner.ledger import Column, columns
from faust_assigner.pipeline.one_writer import FolderInUse
from faust_assigner.pipeline.schema import DAILY, FACTS, HISTORY, arrow_schema
from faust_assigner.pipeline.sinks import DamagedFile, Folder
from faust_assigner.wire.documents import of_json

MANIFEST, REPLACING = "manifest.json", "_REPLACING"
FORMAT_VERSION = 1
#: The version of the daily tables' content; tables of another version are recomputed from the facts.
DERIVED = 3
#: The key that replaces the day for rows whose decision is missing: their day is unknown.
PENDING = "pending"
TABLES: Mapping[str, tuple[Column, ...]] = {**FACTS, **{name: HISTORY[name] for name in DAILY}}
INDEX = arrow_schema(columns("group_id string, decision_id string, day string"))
_QUARANTINE, _INDEX = "quarantine", "_index"


def table_schema(table: str) -> pa.Schema:
    """Return the columns of a day's file, without ``dt``, which is in the folder's name."""
    return arrow_schema(tuple(column for column in TABLES[table] if column.name != "dt"))


@dataclass(frozen=True)
class Day:
    """The files of one day: their common name, and the number of rows of each table that has rows."""

    token: str
    rows: Mapping[str, int]


@dataclass(frozen=True)
class Manifest:
    """The valid files of the store, and the read positions of its sources."""

    generation: int = 0
    days: Mapping[str, Day] = field(default_factory=dict)
    #: Month -> the name of its index file.
    index: Mapping[str, str] = field(default_factory=dict)
    quarantine: str | None = None
    #: The number of refused lines, including lines beyond the limit of ``quarantine``.
    refused: int = 0
    #: The position up to which ``--stream`` read each file and topic.
    sources: Mapping[str, object] = field(default_factory=dict)
    format: int = FORMAT_VERSION
    #: The value of ``DERIVED`` when the daily tables were written; 1 for manifests without this field.
    derived: int = 1

    @property
    def dates(self) -> list[str]:
        """The days in ascending order."""
        return sorted(self.days.keys() - {PENDING})

    @classmethod
    def from_json(cls, told: Mapping[str, object]) -> Manifest:
        """Create a manifest from the output of ``asdict``. Raises ValueError for any other document."""
        missing = {each.name for each in fields(cls)} - told.keys() - {"derived"}
        if missing:
            raise ValueError(f"without {', '.join(sorted(missing))}")
        found = of_json(cls, told)
        for day in found.dates:
            date.fromisoformat(day)
        return found


class Store:
    """The store in the folder ``url``. Each Spark task creates its own instance."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.folder = Folder(url)

    def load(self) -> Manifest:
        """Return the current manifest; an empty manifest if the folder has none.

        Raises ConfigError if another version wrote the folder, and for a damaged manifest.
        """
        if not self.folder.exists(MANIFEST):
            if self.folder.exists("report.json"):
                raise ConfigError(
                    f"{self.url} holds a history of an earlier version, which this version cannot "
                    "extend: "
                    "give an empty --out"
                )
            return Manifest()
        try:
            told = json.loads(self.folder.read(MANIFEST))
            if told["format"] == FORMAT_VERSION:
                return Manifest.from_json(told)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ConfigError(f"{self.url}/{MANIFEST} is damaged: {error!r}") from error
        raise ConfigError(
            f"{self.url}/{MANIFEST} has format {told['format']}, this version reads "
            f"{FORMAT_VERSION}"
        )

    def read(
        self, table: str, day: str, entry: Day | None, only: Sequence[str] | None = None
    ) -> pa.Table:
        """Return a table's rows of a day, without the column ``dt``; empty if ``entry`` lists no rows.

        Raises DamagedFile if the file is unreadable, or has other columns or another number of rows.
        """
        wanted = table_schema(table).empty_table()
        if only is not None:
            wanted = wanted.select(list(only))
        if entry is None or not entry.rows.get(table):
            return wanted
        place = _place(table, day, entry.token)
        rows = self.folder.read_parquet(*place, only=only)
        if rows.schema != wanted.schema or rows.num_rows != entry.rows[table]:
            raise DamagedFile(
                f"{self.folder.path(*place)} has other columns, or another number of rows, than "
                f"{entry.rows[table]} rows of {table}"
            )
        return rows

    def write(self, day: str, tables: Mapping[str, pa.Table]) -> Day:
        """Write the ``tables`` that have rows under a new name; the files are valid after :meth:`commit`."""
        token = uuid.uuid4().hex[:12]
        for table, rows in tables.items():
            if rows.num_rows:
                self.folder.write_parquet(rows, *_place(table, day, token))
        return Day(token, {table: rows.num_rows for table, rows in tables.items() if rows.num_rows})

    def begin(self, manifest: Manifest) -> None:
        """Mark the folder, which may contain files of two versions until :meth:`commit` returns.

        The method first removes the files that a dead run left.
        """
        self.tidy(manifest)
        self.folder.write(REPLACING, b"files of two versions may be here until this file is gone\n")

    def tidy(self, manifest: Manifest) -> None:
        """Complete the last steps of a run that died: remove unused files and the mark of :meth:`begin`."""
        if self.folder.exists(REPLACING):
            self._remove_drafts()
            self._sweep(manifest, None)
            self._placeholders(manifest)
            self.abandon()

    def _remove_drafts(self) -> None:
        """Remove incomplete files of a run that died beside the manifest and the empty files of tables."""
        for where in ((), *((table,) for table in TABLES)):
            for name in self.folder.children(*where):
                if name.startswith(".") and name.endswith(".tmp"):
                    self.folder.remove(*where, name)

    def abandon(self) -> None:
        """Remove the mark of :meth:`begin` after a run without changes."""
        self.folder.remove(REPLACING)

    def commit(
        self,
        before: Manifest,
        days: Mapping[str, Day | None],
        *,
        refused: tuple[pa.Table, int],
        sources: Mapping[str, object],
    ) -> Manifest:
        """Replace the entries of ``before`` by ``days``; return the new manifest.

        An entry of None removes the day. Raises FolderInUse if another run has written a manifest since
        ``before`` was loaded.
        """
        now = {day: entry for day, entry in {**before.days, **days}.items() if entry is not None}
        rows, count = refused
        after = replace(
            before,
            generation=before.generation + 1,
            days=dict(sorted(now.items())),
            index=self._indexed(before, now, days),
            quarantine=self._write_refused(rows),
            refused=count,
            sources=dict(sources),
            derived=DERIVED,
        )
        if self.load().generation != before.generation:
            raise FolderInUse(
                f"another run has written to {self.url} meanwhile; run one command at a time"
            )
        self.folder.write(MANIFEST, json.dumps(asdict(after)).encode())
        self._sweep(after, days)
        self._placeholders(after)
        self.folder.remove(REPLACING)
        return after

    def day_of(self, manifest: Manifest, wanted: pa.Array) -> dict[tuple[str, str], str]:
        """Return the days of stored decisions whose ids are in ``wanted``. Cost: one read per month."""
        found: dict[tuple[str, str], str] = {}
        for name in manifest.index.values():
            rows = self.folder.read_parquet(_INDEX, f"{name}.parquet")
            mine = rows.filter(pc.is_in(rows["decision_id"], wanted))
            keys = zip(*(mine[column].to_pylist() for column in INDEX.names), strict=True)
            found.update({(group, name): day for group, name, day in keys})
        return found

    def read_refused(self, manifest: Manifest) -> pa.Table:
        """Return the stored refused lines."""
        if manifest.quarantine is None:
            return arrow_schema(HISTORY[_QUARANTINE]).empty_table()
        return self.folder.read_parquet(_QUARANTINE, f"{manifest.quarantine}.parquet")

    def _write_refused(self, rows: pa.Table) -> str:
        token = uuid.uuid4().hex[:12]
        self.folder.write_parquet(rows, _QUARANTINE, f"{token}.parquet")
        return token

    def _indexed(
        self, before: Manifest, now: Mapping[str, Day], changed: Iterable[str]
    ) -> dict[str, str]:
        """Write the index files of the months of ``changed``; return month -> the name of its index file."""
        index = dict(before.index)
        days = set(changed) - {PENDING}
        for month in sorted({day[:7] for day in days}):
            mine = [day for day in sorted(days) if day[:7] == month]
            parts = [self._keys(day, now.get(day)) for day in mine]
            if month in index:
                stand = self.folder.read_parquet(_INDEX, f"{index[month]}.parquet")
                parts.append(stand.filter(pc.invert(pc.is_in(stand["day"], pa.array(mine)))))
            name = f"{month}-{uuid.uuid4().hex[:12]}"
            self.folder.write_parquet(pa.concat_tables(parts), _INDEX, f"{name}.parquet")
            index[month] = name
        return index

    def _keys(self, day: str, entry: Day | None) -> pa.Table:
        rows = self.read("decisions", day, entry, INDEX.names[:2])
        return rows.append_column("day", pa.array([day] * rows.num_rows, pa.string()))

    def _sweep(self, manifest: Manifest, days: Iterable[str] | None) -> None:
        """Remove the files of ``days`` (None: of all days) that the manifest does not name."""
        if days is None:
            named = {child for table in TABLES for child in self.folder.children(table)}
            days = {name.removeprefix("dt=") for name in named if name.startswith("dt=")}
        for day in set(days) - {PENDING}:
            entry = manifest.days.get(day)
            for table in TABLES:
                counts = entry is not None and table in entry.rows
                stands = {f"{entry.token}.parquet"} if entry is not None and counts else set()
                self._keep_only(stands, table, f"dt={day}")
        pending = manifest.days.get(PENDING)
        kept = {f"{t}-{pending.token}.parquet" for t in pending.rows} if pending else set()
        self._keep_only(kept, "_pending")
        self._keep_only({f"{name}.parquet" for name in manifest.index.values()}, _INDEX)
        self._keep_only({f"{manifest.quarantine}.parquet"}, _QUARANTINE)

    def _keep_only(self, names: set[str], *where: str) -> None:
        there = self.folder.children(*where)
        for name in there:
            if name not in names:
                self.folder.remove(*where, name)
        if there and not names:
            self.folder.remove(*where)

    def _placeholders(self, manifest: Manifest) -> None:
        """Write a file without rows for each table that has no day, so that readers find its columns."""
        used = {table for day in manifest.dates for table in manifest.days[day].rows}
        for table in TABLES:
            if table not in used:
                if not self.folder.children(table):
                    schema = arrow_schema(TABLES[table])
                    self.folder.write_parquet(schema.empty_table(), table, "empty.parquet")
            else:
                self.folder.remove(table, "empty.parquet")


def _place(table: str, day: str, token: str) -> tuple[str, ...]:
    if day == PENDING:
        return "_pending", f"{table}-{token}.parquet"
    return table, f"dt={day}", f"{token}.parquet"

"""The history's tables as Delta tables, for ``--format delta``.

The Parquet files of the store stay the state of the merge; readers of the Delta tables do not need them.
After each commit of the store, each table whose days changed gets one commit of its own, which replaces these
days. A reader therefore sees each table before or after a visit. ``OUT/published.json`` has, for each table,
the store's files that it contains: the next visit completes a visit that was interrupted between two tables.

``OUT/delta/TABLE``   a Delta table by ``dt``; its name in Spark's SQL is ``delta.`OUT/delta/TABLE```
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date
from typing import TYPE_CHECKING

from faust_assigner.errors import ConfigError
from faust_assigner.pipeline.failure import last_words
from faust_assigner.pipeline.history.store import TABLES, Manifest, Store
from faust_assigner.pipeline.ledgers.files import hadoop_url
from faust_assigner.pipeline.schema import DAY, HISTORY, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

PARQUET, DELTA = "parquet", "delta"
PUBLISHED = "published.json"
_QUARANTINE = "quarantine"
#: The key of a table without days, in the place of a day.
_ALL = "all"
_CATALOG = "spark.sql.catalog.spark_catalog"
_SETTINGS: Mapping[str, str] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    _CATALOG: "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Delta's default of 50 tasks for the list of a table's files costs seconds for a few files a day.
    "spark.databricks.delta.snapshotPartitions": "2",
}
#: Of errors: the package is missing; the catalog is set, but its class is missing.
_MISSING = ("DATA_SOURCE_NOT_FOUND", "plugin class")


def settings_of(kind: str) -> Mapping[str, str]:
    """The settings that a new session needs for the format ``kind``."""
    return _SETTINGS if kind == DELTA else {}


class DeltaTables:
    """The Delta tables of ``store``; ``spark`` writes them."""

    def __init__(self, spark: SparkSession, store: Store) -> None:
        self._spark, self._store = spark, store
        self._root = hadoop_url(store.folder.path(DELTA))

    def check(self) -> None:
        """Raise ConfigError, before a line is read, if the session cannot write Delta tables."""
        from pyspark.errors import AnalysisException

        try:
            self._spark.read.format(DELTA).load(f"{self._root}/_none").schema  # noqa: B018
        except Exception as error:
            said = str(error)
            if any(word in said for word in _MISSING):
                raise self._unfit("has no such format") from error
            # A session with Delta reports that the table does not exist.
            if not isinstance(error, AnalysisException):
                raise self._unfit(f"cannot load it: {last_words(said)}") from error
        if not self._spark.conf.get(_CATALOG, ""):
            wanted = " ".join(f"--conf {name}={value}" for name, value in _SETTINGS.items())
            raise ConfigError(f"--format delta: the session was started without {wanted}")

    def _unfit(self, why: str) -> ConfigError:
        version = ".".join(self._spark.version.split(".")[:2])
        scala = "2.12" if version.startswith("3.") else "2.13"
        # Releases for Spark 4.1 and later have Spark's version in their name.
        own = f"_{version}" if tuple(map(int, version.split("."))) >= (4, 1) else ""
        return ConfigError(
            f"--format delta: this session of Spark {self._spark.version} {why}; start it with "
            f"--packages io.delta:delta-spark{own}_{scala}:VERSION, a release for Spark {version}"
        )

    def name(self, table: str) -> str:
        """The name of ``table`` in Spark's SQL."""
        path = f"{self._root}/{table}".replace("`", "``")
        return f"delta.`{path}`"

    def publish(self, manifest: Manifest) -> None:
        """Bring each table to the days of ``manifest``; unchanged tables get no commit."""
        published = self._published()
        for table in (*TABLES, _QUARANTINE):
            wanted = _parts(manifest, table)
            if published.get(table) != wanted:
                self._bring(table, published.get(table, {}), wanted)
                published[table] = wanted
                self._store.folder.write(PUBLISHED, json.dumps(published).encode())

    def _published(self) -> dict[str, dict[str, str]]:
        """Table -> day -> the name of the day's file; empty if no table was published so far."""
        if not self._store.folder.exists(PUBLISHED):
            return {}
        told: dict[str, dict[str, str]] = json.loads(self._store.folder.read(PUBLISHED))
        return told

    def _bring(self, table: str, stands: Mapping[str, str], wanted: Mapping[str, str]) -> None:
        """Replace the days whose files differ, or the whole table if it is new or has other columns."""
        from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by

        changed = {day for day in {*stands, *wanted} if stands.get(day) != wanted.get(day)}
        if table == _QUARANTINE or not stands or not self._fits(table):
            writer = self._rows(table, wanted).writeTo(self.name(table)).using(DELTA)
            if table != _QUARANTINE:
                writer = writer.partitionedBy(F.col(DAY.name))
            writer.createOrReplace()
            return
        rows = self._rows(table, {day: name for day, name in wanted.items() if day in changed})
        days = [date.fromisoformat(day) for day in sorted(changed)]
        rows.writeTo(self.name(table)).overwrite(F.col(DAY.name).isin(days))

    def _fits(self, table: str) -> bool:
        """Whether the table exists with the present columns."""
        from pyspark.errors import AnalysisException

        try:
            return bool(self._spark.table(self.name(table)).columns == _schema(table).names)
        except AnalysisException:
            return False

    def _rows(self, table: str, parts: Mapping[str, str]) -> DataFrame:
        """The rows of the files ``parts``, with the day of each file."""
        if not parts:
            return self._spark.createDataFrame([], _schema(table))
        base = hadoop_url(self._store.folder.path(table))
        folders = {day: base if day == _ALL else f"{base}/{DAY.name}={day}" for day in parts}
        paths = [f"{folders[day]}/{name}.parquet" for day, name in sorted(parts.items())]
        read = self._spark.read.schema(_schema(table)).option("basePath", base)
        return read.parquet(*paths).select(*_schema(table).names)


def _schema(table: str) -> StructType:
    """The columns of ``table`` with its day; the refused lines have no day."""
    columns = HISTORY[_QUARANTINE] if table == _QUARANTINE else TABLES[table]
    wants_day = table != _QUARANTINE and DAY not in columns
    return spark_schema((DAY, *columns) if wants_day else columns)


def _parts(manifest: Manifest, table: str) -> dict[str, str]:
    """Day -> the name of its file, for the days of ``table`` with rows."""
    if table == _QUARANTINE:
        return {} if manifest.quarantine is None else {_ALL: manifest.quarantine}
    entries = ((day, manifest.days[day]) for day in manifest.dates)
    return {day: entry.token for day, entry in entries if entry.rows.get(table)}

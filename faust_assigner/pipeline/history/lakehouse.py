"""The history's tables as Delta or Iceberg tables, for ``--format delta`` and ``--format iceberg``.

The merge still reads and writes the store's Parquet files; readers of the tables do not need these files.
After each commit of the store, each table whose days changed gets one commit, which replaces these days.
A reader therefore sees a table as it was before or after a visit, never in between.

``OUT/published.json`` lists, for each location and table, the store's files that the table contains. If a
visit is interrupted between two tables, the next visit updates the remaining tables.

``OUT/delta/TABLE``            a Delta table by ``dt``; its name in Spark's SQL is ``delta.`OUT/delta/TABLE```
``OUT/iceberg/history/TABLE``  an Iceberg table by ``dt``, if the session has no catalog ``faust_assigner``;
                               else the table is ``faust_assigner.NAMESPACE.TABLE``
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
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

PARQUET, DELTA, ICEBERG = "parquet", "delta", "iceberg"
PUBLISHED = "published.json"
_QUARANTINE = "quarantine"
#: The key that replaces the day for a table without days.
_ALL = "all"
#: The name of the session's own Iceberg catalog, and the namespace if the session sets none.
CATALOG, NAMESPACE = "faust_assigner", "history"
_CATALOGS = "spark.sql.catalog."
#: Parts of two errors: the package is missing; the catalog is set, but its class is missing.
_MISSING = ("DATA_SOURCE_NOT_FOUND", "plugin class")


class Delta:
    """Delta tables, which are named by their folder; a session needs Delta's catalog from its start.

    The two formats differ in package, settings, names, and the way to replace a whole table.
    """

    #: The name in messages.
    title = "Delta"
    #: The settings that a session needs from its start; :meth:`LakehouseTables.check` checks the last.
    settings: Mapping[str, str] = {
        # By default Delta lists a table's files with 50 tasks, which takes seconds even for few files.
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        f"{_CATALOGS}spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    #: Whether other histories may have tables in the same location.
    is_shared = False

    def __init__(self, spark: SparkSession, root: str) -> None:
        #: The location of all tables; the same for each visit.
        self.place = root

    def package(self, version: str, scala: str) -> str:
        """Return Maven's name of the package for a version of Spark, like 4.0, and of Scala.

        Releases for Spark 4.1 and later have Spark's version in their name.
        """
        own = f"_{version}" if tuple(map(int, version.split("."))) >= (4, 1) else ""
        return f"io.delta:delta-spark{own}_{scala}"

    def name(self, table: str) -> str:
        """Return the name of ``table`` in Spark's SQL: its folder."""
        path = f"{self.place}/{table}".replace("`", "``")
        return f"delta.`{path}`"

    def prepare(self) -> None:
        """Do nothing: the first commit of a table creates its folder."""

    def replace(self, rows: DataFrame, table: str, by: Sequence[str]) -> None:
        """Create or replace the whole ``table``, partitioned by the columns ``by``, in one commit.

        Writes by path, because Delta's catalog fails with Delta 3.3 on Spark 3.5.6 (delta-io/delta#4671).
        """
        writer = rows.write.format(DELTA).mode("overwrite").option("overwriteSchema", "true")
        if by:
            writer = writer.partitionBy(*by)
        writer.save(f"{self.place}/{table}")


class Iceberg:
    """Iceberg tables, in the session's catalog ``faust_assigner`` or else in a catalog for the folder.

    Spark accepts a new catalog in a running session, but does not reload a catalog under the same name. So
    each folder's catalog has its own name.
    """

    title = "Iceberg"
    settings: Mapping[str, str] = {}

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._spark = spark
        self.is_shared = bool(spark.conf.get(_CATALOGS + CATALOG, ""))
        if self.is_shared:
            catalog = CATALOG
            namespace = spark.conf.get(f"{_CATALOGS}{CATALOG}.default-namespace", "") or NAMESPACE
        else:
            catalog, namespace = f"{CATALOG}_{zlib.crc32(root.encode()):08x}", NAMESPACE
            spark.conf.set(f"{_CATALOGS}{catalog}.type", "hadoop")
            spark.conf.set(f"{_CATALOGS}{catalog}.warehouse", root)
            spark.conf.set(_CATALOGS + catalog, "org.apache.iceberg.spark.SparkCatalog")
        self.place = ".".join(f"`{part}`" for part in (catalog, *namespace.split(".")))

    def package(self, version: str, scala: str) -> str:
        """Return Maven's name of the package; it contains the versions of Spark and Scala."""
        return f"org.apache.iceberg:iceberg-spark-runtime-{version}_{scala}"

    def name(self, table: str) -> str:
        """Return the name of ``table`` in Spark's SQL, with catalog and namespace."""
        return f"{self.place}.{table}"

    def prepare(self) -> None:
        """Create the namespace; most catalogs refuse a table whose namespace is missing."""
        self._spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {self.place}")

    def replace(self, rows: DataFrame, table: str, by: Sequence[str]) -> None:
        """Create or replace the whole ``table`` in one commit; the catalog keeps its older snapshots."""
        from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by

        writer = rows.writeTo(self.name(table)).using(ICEBERG)
        if by:
            writer = writer.partitionedBy(*map(F.col, by))
        writer.createOrReplace()


FORMATS: Mapping[str, type[Delta] | type[Iceberg]] = {DELTA: Delta, ICEBERG: Iceberg}


def settings_of(kind: str) -> Mapping[str, str]:
    """Return the settings that a new session needs for the format ``kind``."""
    return FORMATS[kind].settings if kind in FORMATS else {}


class LakehouseTables:
    """The tables of ``store`` in the format ``kind``; ``spark`` writes them."""

    def __init__(self, spark: SparkSession, store: Store, kind: str) -> None:
        self._spark, self._store, self._kind = spark, store, kind
        self._root = hadoop_url(store.folder.path(kind))
        self.format = FORMATS[kind](spark, self._root)

    def check(self) -> None:
        """Raise ConfigError, before a line is read, if the session cannot write these tables."""
        from pyspark.errors import AnalysisException

        option, place = f"--format {self._kind}", self.format.place
        try:
            self._spark.read.format(self._kind).load(f"{self._root}/_none").schema  # noqa: B018
        except Exception as error:
            said = str(error)
            if any(word in said for word in _MISSING):
                raise self._unfit("has no such format") from error
            # A session that has the format raises AnalysisException, since the table does not exist.
            if not isinstance(error, AnalysisException):
                raise self._unfit(f"cannot load it: {last_words(said)}") from error
        settings = self.format.settings
        if settings and not self._spark.conf.get([*settings][-1], ""):
            wanted = " ".join(f"--conf {name}={value}" for name, value in settings.items())
            raise ConfigError(f"{option}: the session was started without {wanted}")
        if not self.format.is_shared:
            return
        if self._columns(next(iter(TABLES))) is not None and place not in self._published():
            raise ConfigError(
                f"{option}: {place} has the tables of another history; name another namespace "
                f"with {_CATALOGS}{CATALOG}.default-namespace, or drop these tables"
            )

    def _unfit(self, why: str) -> ConfigError:
        version = ".".join(self._spark.version.split(".")[:2])
        package = self.format.package(version, "2.12" if version.startswith("3.") else "2.13")
        return ConfigError(
            f"--format {self._kind}: this session of Spark {self._spark.version} {why}; start it with "
            f"--packages {package}:VERSION, a release for Spark {version}"
        )

    def publish(self, manifest: Manifest) -> None:
        """Update each table to the days of ``manifest``; unchanged tables get no commit."""
        published = self._published()
        if self.format.place not in published:
            self.format.prepare()
            published[self.format.place] = {}
            self._record(published)
        here = published[self.format.place]
        for table in (*TABLES, _QUARANTINE):
            wanted = _parts(manifest, table)
            if here.get(table) != wanted:
                stands = here.get(table, {})
                if stands:
                    # If the run dies after the table's commit, the next visit replaces the same days again,
                    # also days that the history does not have any more.
                    here[table] = stands | dict.fromkeys(_changed(stands, wanted), "")
                    self._record(published)
                self._replace_changed_days(table, stands, wanted)
                here[table] = wanted
                self._record(published)

    def _record(self, published: Mapping[str, object]) -> None:
        self._store.folder.write(PUBLISHED, json.dumps(published).encode())

    def _published(self) -> dict[str, dict[str, dict[str, str]]]:
        """Return location -> table -> day -> the name of the day's file; empty at first."""
        if not self._store.folder.exists(PUBLISHED):
            return {}
        told: dict[str, dict[str, dict[str, str]]] = json.loads(self._store.folder.read(PUBLISHED))
        return told

    def _replace_changed_days(
        self, table: str, stands: Mapping[str, str], wanted: Mapping[str, str]
    ) -> None:
        """Replace the days whose files differ, or the whole table if it is new or has other columns."""
        from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by

        changed = _changed(stands, wanted)
        if table == _QUARANTINE or not stands or self._columns(table) != _schema(table).names:
            by = () if table == _QUARANTINE else (DAY.name,)
            self.format.replace(self._rows(table, wanted), table, by)
            return
        rows = self._rows(table, {day: file for day, file in wanted.items() if day in changed})
        days = [date.fromisoformat(day) for day in sorted(changed)]
        rows.writeTo(self.format.name(table)).overwrite(F.col(DAY.name).isin(days))

    def _columns(self, table: str) -> list[str] | None:
        """Return the columns of ``table``; None if the table does not exist."""
        from pyspark.errors import AnalysisException

        try:
            return list(self._spark.table(self.format.name(table)).columns)
        except AnalysisException:
            return None

    def _rows(self, table: str, parts: Mapping[str, str]) -> DataFrame:
        """Return the rows of the files ``parts``, with the day of each file."""
        if not parts:
            return self._spark.createDataFrame([], _schema(table))
        base = hadoop_url(self._store.folder.path(table))
        folders = {day: base if day == _ALL else f"{base}/{DAY.name}={day}" for day in parts}
        paths = [f"{folders[day]}/{name}.parquet" for day, name in sorted(parts.items())]
        read = self._spark.read.schema(_schema(table)).option("basePath", base)
        read = read.option("parquet.page.verify-checksum.enabled", "true")
        return read.parquet(*paths).select(*_schema(table).names)


def _changed(stands: Mapping[str, str], wanted: Mapping[str, str]) -> set[str]:
    """Return the days whose files differ."""
    return {day for day in {*stands, *wanted} if stands.get(day) != wanted.get(day)}


def _schema(table: str) -> StructType:
    """Return the columns of ``table`` and its day; the refused lines have no day."""
    columns = HISTORY[_QUARANTINE] if table == _QUARANTINE else TABLES[table]
    wants_day = table != _QUARANTINE and DAY not in columns
    return spark_schema((DAY, *columns) if wants_day else columns)


def _parts(manifest: Manifest, table: str) -> dict[str, str]:
    """Return day -> the name of the day's file, for the days on which ``table`` has rows."""
    if table == _QUARANTINE:
        return {} if manifest.quarantine is None else {_ALL: manifest.quarantine}
    entries = ((day, manifest.days[day]) for day in manifest.dates)
    return {day: entry.token for day, entry in entries if entry.rows.get(table)}

"""Where results go: any folder Hadoop reaches, replaced whole and never half-visible.

A table is written beside its place first and moved there when complete, so a job that dies leaves the
table of the run before; running again gives the same contents. Several tables are replaced one after the
other, under the mark ``_REPLACING``; of a table that has days only those that changed. Local paths and URLs
are alike. ``Folder`` goes through Hadoop, ``PlainFolder`` through fsspec, without Spark.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from faust_assigner.pipeline.ledgers.files import absolute, file_system, hadoop_url
from faust_assigner.pipeline.schema import HISTORY, arrow_schema, spark_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from faust_assigner.ledger import Column

STAGING = "_staging"
#: Stands in a folder while its tables are being replaced, and after a job that died doing so.
REPLACING = "_REPLACING"


def _without_checksums(fs: Any) -> Any:
    """On a local disk Hadoop would lay a hidden checksum file beside each of ours: what stands below it."""
    from py4j.protocol import Py4JError

    try:
        return fs.getRawFileSystem()
    except Py4JError:
        return fs


class Results(ABC):
    """A folder of results: what both kinds do alike."""

    url: str

    def path(self, *names: str) -> str:
        """The URL of something inside."""
        return "/".join((self.url, *names))

    @abstractmethod
    def exists(self, *names: str) -> bool:
        """Whether there is a file or folder of that name inside."""

    @abstractmethod
    def children(self, *names: str) -> list[str]:
        """The names of what stands in a folder inside, in order; nothing when it is not there."""

    @abstractmethod
    def remove(self, *names: str) -> None:
        """Delete a file or a whole folder inside; nothing there is fine."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """The bytes of a small file."""

    @abstractmethod
    def stage_rows(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write a history table's ``rows`` beside their place, a folder for each day."""

    @abstractmethod
    def _make_folder(self, *names: str) -> None: ...

    @abstractmethod
    def _rename(self, source: tuple[str, ...], target: tuple[str, ...]) -> None: ...

    @abstractmethod
    def _create(self, content: bytes, *names: str) -> None: ...

    def move(self, source: tuple[str, ...], target: tuple[str, ...]) -> None:
        """Put ``source`` where ``target`` is or was; the old one goes last, so a copy always exists."""
        old = (STAGING, f"old-{'-'.join(target)}")
        self._make_folder(STAGING)
        self.remove(*old)
        if self.exists(*target):
            self._rename(target, old)
        self._rename(source, target)
        self.remove(*old)

    def write(self, name: str, content: bytes) -> None:
        """A small file, complete or not there."""
        self.stage_file(name, content)
        self.publish(name)

    def stage_file(self, name: str, content: bytes) -> None:
        """Write a file beside its place."""
        self._create(content, STAGING, name)

    def publish(self, name: str) -> None:
        """Put the staged table or file in the place of the one before."""
        self.move((STAGING, name), (name,))

    def publish_day(self, table: str, day: str) -> None:
        """Put one staged day in the place of the one before; one that was not staged is gone."""
        name = f"dt={day}"
        if self.exists(STAGING, table, name):
            self.move((STAGING, table, name), (table, name))
        else:
            self.remove(table, name)

    @contextmanager
    def replacing(self) -> Iterator[None]:
        """Mark the folder inside the block: until the mark is gone, tables of two runs may stand in it.

        A block that fails leaves the mark; the next run that succeeds removes it.
        """
        if not self.exists(REPLACING):
            self.write(REPLACING, b"tables of two runs may stand here until this file is gone\n")
        yield
        self.remove(REPLACING)

    def clear_staging(self) -> None:
        """Drop what a run left beside; its own is gone already when all went well."""
        self.remove(STAGING)


class Folder(Results):
    """A folder of results, through the file system Spark itself would use for it."""

    def __init__(self, spark: SparkSession, url: str) -> None:
        self.url = hadoop_url(absolute(url)).rstrip("/")
        self._spark = spark
        self._path_class = spark._jvm.org.apache.hadoop.fs.Path
        root = self._path_class(self.url)
        self._fs = _without_checksums(root.getFileSystem(spark._jsc.hadoopConfiguration()))

    def _at(self, *names: str) -> Any:
        return self._path_class(self.path(*names))

    def exists(self, *names: str) -> bool:
        """See :class:`Results`."""
        return bool(self._fs.exists(self._at(*names)))

    def children(self, *names: str) -> list[str]:
        """See :class:`Results`."""
        at = self._at(*names)
        found = self._fs.listStatus(at) if self._fs.exists(at) else []
        return sorted(status.getPath().getName() for status in found)

    def remove(self, *names: str) -> None:
        """See :class:`Results`."""
        self._fs.delete(self._at(*names), True)

    def _make_folder(self, *names: str) -> None:
        self._fs.mkdirs(self._at(*names))

    def _rename(self, source: tuple[str, ...], target: tuple[str, ...]) -> None:
        if not self._fs.rename(self._at(*source), self._at(*target)):
            raise OSError(f"could not move {self.path(*source)} to {self.path(*target)}")

    def _create(self, content: bytes, *names: str) -> None:
        stream = self._fs.create(self._at(*names), True)
        try:
            stream.write(bytearray(content))
        finally:
            stream.close()

    def read(self, name: str) -> bytes:
        """See :class:`Results`."""
        stream = self._fs.open(self._at(name))
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def stage_rows(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """See :class:`Results`."""
        columns = HISTORY[table]
        ordered = [tuple(row[column.name] for column in columns) for row in rows]
        self.stage(table, self._spark.createDataFrame(ordered, spark_schema(columns)))

    def stage(self, table: str, rows: DataFrame) -> DataFrame:
        """Write ``rows``, however many, beside their place; return them as written."""
        target = self.path(STAGING, table)
        if "dt" in rows.columns:
            rows.coalesce(1).write.mode("overwrite").partitionBy("dt").parquet(target)
        else:
            rows.coalesce(1).write.mode("overwrite").parquet(target)
        if not self._has_parquet(STAGING, table):
            # Without a single day there is no file, and so no schema for whoever reads the folder.
            rows.limit(0).coalesce(1).write.mode("overwrite").parquet(target)
        return self._spark.read.schema(rows.schema).parquet(target)

    def _has_parquet(self, *names: str) -> bool:
        found = self._fs.listFiles(self._at(*names), True)
        while found.hasNext():
            if found.next().getPath().getName().endswith(".parquet"):
                return True
        return False


class PlainFolder(Results):
    """A folder of results, through fsspec; Parquet by pyarrow."""

    def __init__(self, url: str) -> None:
        self.url = absolute(url).rstrip("/")
        self._fs, self._root = file_system(self.url)

    def _at(self, *names: str) -> str:
        return "/".join((str(self._root).rstrip("/"), *names))

    def exists(self, *names: str) -> bool:
        """See :class:`Results`."""
        self._fs.invalidate_cache()
        return bool(self._fs.exists(self._at(*names)))

    def children(self, *names: str) -> list[str]:
        """See :class:`Results`."""
        if not self.exists(*names):
            return []
        return sorted(
            str(name).rstrip("/").rsplit("/", 1)[-1]
            for name in self._fs.ls(self._at(*names), detail=False)
        )

    def remove(self, *names: str) -> None:
        """See :class:`Results`."""
        if self.exists(*names):
            self._fs.rm(self._at(*names), recursive=True)

    def _make_folder(self, *names: str) -> None:
        self._fs.makedirs(self._at(*names), exist_ok=True)

    def _rename(self, source: tuple[str, ...], target: tuple[str, ...]) -> None:
        self._make_folder(*target[:-1])
        self._fs.mv(self._at(*source), self._at(*target), recursive=True)

    def _create(self, content: bytes, *names: str) -> None:
        self._make_folder(*names[:-1])
        self._fs.pipe_file(self._at(*names), content)

    def read(self, name: str) -> bytes:
        """See :class:`Results`."""
        return bytes(self._fs.cat_file(self._at(name)))

    def stage_rows(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """See :class:`Results`."""
        self.remove(STAGING, table)
        columns = HISTORY[table]
        if not any(column.name == "dt" for column in columns) or not rows:
            self._put_parquet(columns, rows, STAGING, table)
            return
        days: dict[str, list[Mapping[str, Any]]] = {}
        for row in rows:
            days.setdefault(row["dt"].isoformat(), []).append(row)
        inside = tuple(
            column for column in columns if column.name != "dt"
        )  # the folder's name says it
        for day, mine in sorted(days.items()):
            self._put_parquet(inside, mine, STAGING, table, f"dt={day}")

    def _put_parquet(
        self,
        columns: tuple[Column, ...],
        rows: Sequence[Mapping[str, Any]],
        *names: str,
    ) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        schema = arrow_schema(columns)
        told = [{column.name: row[column.name] for column in columns} for row in rows]
        buffer = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(told, schema=schema), buffer)
        self._create(buffer.getvalue(), *names, "part-00000.parquet")

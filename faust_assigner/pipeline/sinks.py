"""Where results go: any folder Hadoop reaches, replaced whole and never half-visible.

A table is written beside its place first and moved there when complete, so a job that dies leaves the
table of the run before; running again gives the same contents. Several tables are replaced one after the
other, under the mark ``_REPLACING``. Local paths and URLs are alike.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from faust_assigner.pipeline.ledgers.files import absolute, hadoop_url

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

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


class Folder:
    """A folder of results, through the file system Spark itself would use for it."""

    def __init__(self, spark: SparkSession, url: str) -> None:
        self.url = hadoop_url(absolute(url)).rstrip("/")
        self._spark = spark
        self._path_class = spark._jvm.org.apache.hadoop.fs.Path
        root = self._path_class(self.url)
        self._fs = _without_checksums(root.getFileSystem(spark._jsc.hadoopConfiguration()))

    def path(self, *names: str) -> str:
        """The URL of something inside."""
        return "/".join((self.url, *names))

    def _at(self, *names: str) -> Any:
        return self._path_class(self.path(*names))

    def exists(self, *names: str) -> bool:
        """Whether there is a file or folder of that name inside."""
        return bool(self._fs.exists(self._at(*names)))

    def children(self, *names: str) -> list[str]:
        """The names of what stands in a folder inside, in order; nothing when it is not there."""
        at = self._at(*names)
        found = self._fs.listStatus(at) if self._fs.exists(at) else []
        return sorted(status.getPath().getName() for status in found)

    def remove(self, *names: str) -> None:
        """Delete a file or a whole folder inside; nothing there is fine."""
        self._fs.delete(self._at(*names), True)

    def move(self, source: tuple[str, ...], target: tuple[str, ...]) -> None:
        """Put ``source`` where ``target`` is or was; the old one goes last, so a copy always exists."""
        old = (STAGING, f"old-{'-'.join(target)}")
        self._fs.mkdirs(self._at(STAGING))
        self.remove(*old)
        if self.exists(*target):
            self._rename(target, old)
        self._rename(source, target)
        self.remove(*old)

    def _rename(self, source: tuple[str, ...], target: tuple[str, ...]) -> None:
        if not self._fs.rename(self._at(*source), self._at(*target)):
            raise OSError(f"could not move {self.path(*source)} to {self.path(*target)}")

    def write(self, name: str, content: bytes) -> None:
        """A small file, complete or not there."""
        stream = self._fs.create(self._at(STAGING, name), True)
        try:
            stream.write(bytearray(content))
        finally:
            stream.close()
        self.move((STAGING, name), (name,))

    def read(self, name: str) -> bytes:
        """The bytes of a small file."""
        stream = self._fs.open(self._at(name))
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def stage(self, table: str, rows: DataFrame, keys: tuple[str, ...]) -> DataFrame:
        """Write ``rows`` beside their place, a folder for each day; return them as written."""
        target = self.path(STAGING, table)
        if "dt" in keys:
            ordered = rows.repartition("dt").sortWithinPartitions(*keys)
            ordered.write.mode("overwrite").partitionBy("dt").parquet(target)
        else:
            rows.coalesce(1).sortWithinPartitions(*keys).write.mode("overwrite").parquet(target)
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

    def publish(self, table: str) -> None:
        """Put the staged table in the place of the one before."""
        self.move((STAGING, table), (table,))

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

"""Where results go: any folder that fsspec reaches, local or on an object store, with or without Spark.

A file of a local folder is written beside its place and moved there when it is complete; an object store
shows a file when it is complete. So a reader sees a whole file or none.
"""

from __future__ import annotations

import io
import os
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from faust_assigner.pipeline.ledgers.files import absolute, file_system, is_local

if TYPE_CHECKING:
    import pyarrow as pa


class Folder:
    """A folder of results; Parquet by pyarrow."""

    def __init__(self, url: str) -> None:
        self.url = absolute(url).rstrip("/")
        self._fs, self._root = file_system(self.url)
        self._is_local = is_local(self._fs)

    def path(self, *names: str) -> str:
        """The URL of something inside."""
        return "/".join((self.url, *names))

    def _at(self, *names: str) -> str:
        return "/".join((str(self._root).rstrip("/"), *names))

    def exists(self, *names: str) -> bool:
        """Whether there is a file or folder of that name inside."""
        if self._is_local:
            return os.path.exists(self._at(*names))
        self._fs.invalidate_cache()
        return bool(self._fs.exists(self._at(*names)))

    def children(self, *names: str) -> list[str]:
        """The names in a folder inside, in order; none when it is not there."""
        if not self.exists(*names):
            return []
        found = self._fs.ls(self._at(*names), detail=False)
        return sorted(str(name).rstrip("/").rsplit("/", 1)[-1] for name in found)

    def remove(self, *names: str) -> None:
        """Delete a file or a whole folder inside; nothing there is fine."""
        if self.exists(*names):
            self._fs.rm(self._at(*names), recursive=True)

    def read(self, *names: str) -> bytes:
        """The bytes of a file."""
        return bytes(self._fs.cat_file(self._at(*names)))

    def write(self, name: str, content: bytes) -> None:
        """A file, complete or not there, in the place of the one before."""
        self._create(content, name)

    def read_parquet(self, *names: str, only: Sequence[str] | None = None) -> pa.Table:
        """A Parquet file, or ``only`` some of its columns."""
        import pyarrow.parquet as pq

        with pq.ParquetFile(io.BytesIO(self.read(*names))) as file:
            return file.read(columns=None if only is None else list(only))

    def write_parquet(self, rows: pa.Table, *names: str) -> None:
        """``rows`` as one Parquet file."""
        import pyarrow.parquet as pq

        buffer = io.BytesIO()
        pq.write_table(rows, buffer, compression="zstd")
        self._create(buffer.getvalue(), *names)

    def _create(self, content: bytes, *names: str) -> None:
        target = self._at(*names)
        if not self._is_local:
            self._fs.pipe_file(target, content)
            return
        os.makedirs(os.path.dirname(target), exist_ok=True)
        beside = f"{os.path.dirname(target)}/.{uuid.uuid4().hex}"
        try:
            with open(beside, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, target)
        except BaseException:
            if os.path.exists(beside):
                os.unlink(beside)
            raise

"""A folder of results on any file system of fsspec, local or an object store, with or without Spark.

A local file is written under a temporary name and renamed when it is complete; an object store shows
complete files only. A reader therefore never sees a partial file. The pages of a Parquet file have
checksums, because a flipped bit would otherwise change figures without an error.
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from faust_assigner.errors import FaustAssignerError
from faust_assigner.pipeline.ledgers.files import absolute, file_system, is_local
from faust_assigner.snapshots.storage import replacing

if TYPE_CHECKING:
    import pyarrow as pa
    from fsspec import AbstractFileSystem


class DamagedFile(FaustAssignerError):
    """A file of the folder cannot be read or lacks rows; the message names the file."""


class Folder:
    """A folder of results; pyarrow reads and writes its Parquet files."""

    def __init__(self, url: str) -> None:
        self.url = absolute(url).rstrip("/")
        self._fs, self._root = file_system(self.url)
        self._is_local = is_local(self._fs)

    def path(self, *names: str) -> str:
        """Return the URL of a file or subfolder."""
        return "/".join((self.url, *names))

    def _at(self, *names: str) -> str:
        return "/".join((str(self._root).rstrip("/"), *names))

    def exists(self, *names: str) -> bool:
        """Return whether this folder contains the file or subfolder."""
        if self._is_local:
            return os.path.exists(self._at(*names))
        self._fs.invalidate_cache()
        return bool(self._fs.exists(self._at(*names)))

    def children(self, *names: str) -> list[str]:
        """Return the sorted names in a subfolder; empty if the subfolder does not exist."""
        if not self.exists(*names):
            return []
        found = self._fs.ls(self._at(*names), detail=False)
        return sorted(str(name).rstrip("/").rsplit("/", 1)[-1] for name in found)

    def remove(self, *names: str) -> None:
        """Delete a file or a whole subfolder, if it exists."""
        if self.exists(*names):
            self._fs.rm(self._at(*names), recursive=True)

    def read(self, *names: str) -> bytes:
        """Return the bytes of a file. Raises DamagedFile for a pipe or a device, which may never end."""
        path = self._at(*names)
        if self._is_local and os.path.exists(path) and not os.path.isfile(path):
            raise DamagedFile(f"{path} is not a file")
        return bytes(self._fs.cat_file(path))

    def write(self, name: str, content: bytes) -> None:
        """Write or replace a file in one step."""
        self._create(content, name)

    def read_parquet(self, *names: str, only: Sequence[str] | None = None) -> pa.Table:
        """Read a Parquet file: all columns, or only the columns in ``only``. Raises DamagedFile."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        content = io.BytesIO(self.read(*names))
        try:
            with pq.ParquetFile(content, page_checksum_verification=True) as file:
                return file.read(columns=None if only is None else list(only))
        except (pa.ArrowException, ValueError, OSError) as error:
            raise DamagedFile(f"{self.path(*names)} is damaged: {error}") from error

    def write_parquet(self, rows: pa.Table, *names: str) -> None:
        """Write ``rows`` as one Parquet file."""
        import pyarrow.parquet as pq

        buffer = io.BytesIO()
        pq.write_table(rows, buffer, compression="zstd", write_page_checksum=True)
        self._create(buffer.getvalue(), *names)

    def _create(self, content: bytes, *names: str) -> None:
        write_whole(self._fs, self._at(*names), content)


def write_whole(fs: AbstractFileSystem, target: str, content: bytes) -> None:
    """Write or replace a file in one step: a reader sees the old or the new content."""
    if not is_local(fs):
        fs.pipe_file(target, content)
        return
    with replacing(Path(target)) as file:
        file.write(content)

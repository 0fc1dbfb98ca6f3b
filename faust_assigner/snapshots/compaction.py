"""Changelog records of one partition, in offset order -> its last value per key, as SST files.

Memory is bounded: what does not fit is written as a sorted run and handed to a scratch RocksDB, whose
iterator then is the k-way merge (the newest run wins, tombstones hide older values). A previous
snapshot is simply the oldest run. A partition that fits never touches the scratch database.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import rocksdict

from faust_assigner.snapshots.sst import (
    MAX_FILE_BYTES,
    OFFSET_KEY,
    SstFile,
    digest_files,
    ingest,
    scratch_database,
    write_files,
)

DEFAULT_MEMORY_BYTES = 256 * 1024 * 1024
_Value = TypeVar("_Value")
#: What a dict entry and two bytes objects cost beside their contents, CPython 3.11.
_ENTRY_OVERHEAD = 170


@dataclass(frozen=True)
class Compacted:
    """The files of one snapshot before they are published."""

    files: tuple[SstFile, ...]
    keys: int
    bytes: int
    sha256: str
    #: Sorted runs that did not fit into memory; 0 is the fast path.
    runs: int


class Compactor:
    """Takes batches in offset order, gives files. Use as a context manager: it owns scratch space.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Compactor(Path(folder)) as compactor:
    ...     compactor.add([b"a", b"b", b"a"], [b"1", b"2", None])
    ...     compactor.finish(next_offset=3).keys
    1
    """

    def __init__(
        self, folder: Path, *, base: Sequence[Path] = (), memory_bytes: int = DEFAULT_MEMORY_BYTES,
        max_file_bytes: int = MAX_FILE_BYTES,
    ) -> None:
        self._folder = folder
        self._memory_bytes = memory_bytes
        self._max_file_bytes = max_file_bytes
        self._latest: dict[bytes | None, bytes | None] = {}
        self._records = 0
        self._record_bytes = 0
        self._runs = 0
        self._scratch: rocksdict.Rdict | None = None
        self._exit = contextlib.ExitStack()
        if base:
            ingest(self._open_scratch(), base)

    def __enter__(self) -> Compactor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._exit.close()

    def add(
        self, keys: Iterable[bytes | None], values: Iterable[bytes | None], *,
        records: int | None = None, size: int | None = None,
    ) -> None:
        """Apply one batch; a value of None deletes. A record without a key is dropped, as Kafka does.

        ``records`` and ``size`` (bytes), when known, steer the memory bound without another pass.
        """
        if records is None or size is None:
            keys, values = list(keys), list(values)
            records = len(keys)
            size = sum(len(item) for items in (keys, values) for item in items if item is not None)
        self._latest.update(zip(keys, values, strict=True))
        self._records += records
        self._record_bytes += size
        if self._held_bytes() > self._memory_bytes:
            self._spill()

    def finish(self, next_offset: int) -> Compacted:
        """Write the files: every live key, and Faust's offset key saying ``next_offset - 1``."""
        latest = self._take()
        latest[OFFSET_KEY] = str(next_offset - 1).encode()
        out = self._folder / "out"
        if self._scratch is None:
            live = {key: value for key, value in latest.items() if value is not None}
            files = write_files(_ascending(live), out, max_file_bytes=self._max_file_bytes)
        else:
            self._ingest_run(self._scratch, latest)
            files = write_files(self._scratch.items(), out, max_file_bytes=self._max_file_bytes)
        sha256, size = digest_files(file.path for file in files)
        keys = sum(file.keys for file in files) - 1
        return Compacted(tuple(files), keys, size, sha256, self._runs)

    def _held_bytes(self) -> float:
        average = self._record_bytes / self._records if self._records else 0.0
        return len(self._latest) * (average + _ENTRY_OVERHEAD)

    def _take(self) -> dict[bytes, bytes | None]:
        """Hand out what is held, without records that have no key or pose as Faust's offset."""
        held, self._latest = self._latest, {}
        held.pop(None, None)
        held.pop(OFFSET_KEY, None)
        return held  # type: ignore[return-value]

    def _spill(self) -> None:
        self._runs += 1
        self._ingest_run(self._open_scratch(), self._take())

    def _ingest_run(
        self, scratch: rocksdict.Rdict, latest: dict[bytes, bytes | None],
    ) -> None:
        if not latest:
            return
        run = write_files(_ascending(latest), self._folder / "run", max_file_bytes=1 << 62)
        ingest(scratch, [file.path for file in run], move=True)

    def _open_scratch(self) -> rocksdict.Rdict:
        if self._scratch is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._scratch = self._exit.enter_context(scratch_database(self._folder))
        return self._scratch


def _ascending(items: Mapping[bytes, _Value]) -> Iterable[tuple[bytes, _Value]]:
    keys = sorted(items)
    return zip(keys, map(items.__getitem__, keys), strict=True)

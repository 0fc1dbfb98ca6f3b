"""Compacts the changelog records of one partition to the last value per key, and writes SST files.

Batches are Arrow columns. Folding merges batches in C++ and keeps the last row of each key, so that Python
objects are made only for the remaining keys. Memory is bounded: excess rows are written as a sorted run to
a scratch RocksDB, whose iterator merges the runs (the newest run wins). A partition that fits into memory
needs no runs.
The rows are written as all rows of a snapshot, or as changes of a previous snapshot (layers.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import rocksdict

from faust_assigner.snapshots.arrow_batches import JsonColumns, ascending, batch_of, last_per_key
from faust_assigner.snapshots.json_rows import RAW
from faust_assigner.snapshots.layers import DEFAULT_MAX_LAYERS, Base, Layers, Row, extend
from faust_assigner.snapshots.sst import (
    MAX_FILE_BYTES,
    OFFSET_KEY,
    SstFile,
    digest_files,
    ingest,
    scratch_database,
    write_files,
)

if TYPE_CHECKING:
    import pyarrow as pa

DEFAULT_MEMORY_BYTES = 256 * 1024 * 1024
#: The minimum number of bytes to fold at once: for fewer bytes the calls cost more than the work.
_FOLD_BYTES = 16 * 1024 * 1024
#: The limit of held and of waiting bytes; their sum stays well below an Arrow column's 2 GiB.
_MOST_BYTES = 512 * 1024 * 1024
#: Prefix of each value in a run. A run also has deleted keys, whose entry is empty.
_LIVE = b"="


@dataclass(frozen=True)
class Compacted:
    """The files of one snapshot before they are published."""

    #: The layers, the oldest first; with a base they include its unchanged files.
    layers: Layers
    keys: int
    bytes: int
    sha256: str
    #: Sorted runs written because of the memory limit; usually 0.
    runs: int
    #: The JSON types of keys and values; None if unchecked.
    key_types: frozenset[str] | None
    value_types: frozenset[str] | None
    #: Records that were left out because their key or value is not JSON.
    unreadable: int

    @property
    def files(self) -> tuple[SstFile, ...]:
        """The files of all layers."""
        return tuple(file for layer in self.layers for file in layer)

    @property
    def is_whole(self) -> bool:
        """Whether the snapshot is one layer of new files with all rows."""
        return len(self.layers) == 1 and all("/" not in file.name for file in self.files)


class Compactor:
    """Takes batches in offset order and writes files.

    Use it as a context manager, because it owns scratch space.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Compactor(Path(folder)) as compactor:
    ...     compactor.add([b"a", b"b", b"a"], [b"1", b"2", None])
    ...     compactor.finish(next_offset=3).keys
    1
    """

    def __init__(
        self,
        folder: Path,
        *,
        base: Base | None = None,
        max_layers: int = DEFAULT_MAX_LAYERS,
        memory_bytes: int = DEFAULT_MEMORY_BYTES,
        max_file_bytes: int = MAX_FILE_BYTES,
        codecs: tuple[str, str] = (RAW, RAW),
    ) -> None:
        self._folder, self._base, self._max_layers = folder, base, max_layers
        self._json = JsonColumns(codecs)
        # A fold needs memory for the held rows, the waiting rows, Arrow's copy of both, and the result.
        self._share_bytes = min(memory_bytes // 6, _MOST_BYTES)
        self._max_file_bytes = max_file_bytes
        #: Batches in offset order; the first is the last fold's result, with one row per key.
        self._batches: list[pa.RecordBatch] = []
        #: The number of folded batches: 0 or 1.
        self._held = 0
        self._folded_bytes = 0
        self._waiting_bytes = 0
        self._runs = 0
        self._scratch: rocksdict.Rdict | None = None
        self._exit = contextlib.ExitStack()

    def __enter__(self) -> Compactor:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._exit.close()

    def add(
        self, keys: pa.Array | Sequence[bytes | None], values: pa.Array | Sequence[bytes | None]
    ) -> None:
        """Apply one batch; a value of None deletes. A record without a key is dropped, as Kafka does.

        Cost: about 0.1 us a record, as Arrow arrays; each record is folded about twice. Needs pyarrow.
        """
        batch = batch_of(keys, values)
        self._batches.append(batch)
        self._waiting_bytes += batch.nbytes
        # Wait for as many new bytes as are held: this limits the cost of folding per new byte.
        if self._waiting_bytes > min(max(self._folded_bytes, _FOLD_BYTES), self._share_bytes):
            self._fold()
            if self._folded_bytes > self._share_bytes:
                self._runs += 1
                self._ingest_run(self._open_scratch())

    def finish(self, next_offset: int) -> Compacted:
        """Write every live key, or with a base the changes, and Faust's offset key (``next_offset - 1``)."""
        self._fold()
        # Add the offset last, so that it overwrites a record under the same key.
        offset = batch_of([OFFSET_KEY], [str(next_offset - 1).encode()])
        self._batches = [last_per_key([*self._batches, offset])]
        layers, keys = self._write_layers()
        sha256, size = digest_files(file.path for layer in layers for file in layer)
        return Compacted(
            layers,
            keys,
            size,
            sha256,
            self._runs,
            self._json.types_of("key"),
            self._json.types_of("value"),
            self._json.unreadable,
        )

    def _write_layers(self) -> tuple[Layers, int]:
        """Write the files; return (the layers, the number of live keys)."""
        limit = self._max_file_bytes
        if self._base is not None:
            rows = self._rows(tombstones=True)
            return extend(
                self._base, rows, self._folder, max_layers=self._max_layers, max_file_bytes=limit
            )
        files = write_files(
            self._rows(tombstones=False), self._folder / "out", max_file_bytes=limit
        )
        return (tuple(files),), sum(file.keys for file in files) - 1

    def _rows(self, *, tombstones: bool) -> Iterator[Row]:
        """Yield all rows, keys ascending, from memory or from the merged runs."""
        if self._scratch is None:
            yield from self._take_folded_rows(tombstones=tombstones)
            return
        self._ingest_run(self._scratch)
        for key, value in self._scratch.items():
            if value:
                yield key, value[len(_LIVE) :]
            elif tombstones:
                yield key, None

    def _fold(self) -> None:
        new = self._json.readable(self._batches[self._held :])
        folded = last_per_key([*self._batches[: self._held], *new] or [batch_of([], [])])
        self._held = 1
        self._batches = [folded]
        self._folded_bytes, self._waiting_bytes = folded.nbytes, 0

    def _take_folded_rows(self, *, tombstones: bool) -> Iterator[Row]:
        """Yield the rows of the last fold, keys ascending."""
        [folded] = self._batches
        self._batches, self._folded_bytes, self._held = [], 0, 0
        if not tombstones and folded.column("value").null_count:
            folded = folded.filter(folded.column("value").is_valid())
        return ascending(folded)

    def _ingest_run(self, scratch: rocksdict.Rdict) -> None:
        rows = self._take_folded_rows(tombstones=True)
        items = ((key, b"" if value is None else _LIVE + value) for key, value in rows)
        run = write_files(items, self._folder / "run", max_file_bytes=1 << 62)
        if run:
            ingest(scratch, [file.path for file in run], move=True)

    def _open_scratch(self) -> rocksdict.Rdict:
        if self._scratch is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._scratch = self._exit.enter_context(scratch_database(self._folder))
        return self._scratch

"""Sorted items -> SST files that RocksDB ingests unchanged, and SST files -> items.

Identical contents give bit-identical files (one machine, one rocksdict version): RocksDB stamps each
file with a random session id, which :func:`seal` replaces by an id derived from the contents.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import rocksdict

from faust_assigner.snapshots.manifest import SnapshotError
from faust_assigner.snapshots.seal import seal

#: The key under which Faust's RocksDB store keeps the last offset it applied.
OFFSET_KEY = b"__faust\0offset__"
#: The data bytes of a file. A change rewrites a whole file, so smaller
#: files mean fewer rewritten bytes.
MAX_FILE_BYTES = 16 * 1024 * 1024
#: The Bloom filter of Faust's stores, which by default is in each file.
BLOOM_BITS_PER_KEY = 10
#: The keys that may follow the last returned key in its block: Faust's offset, which readers skip.
_STEPS = 2
_SCRATCH_CACHE_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True)
class SstFile:
    """A finished file: its content-addressed name, its path, its size and keys.

    The name of a file that another snapshot of the partition wrote begins with that snapshot's folder.
    """

    name: str
    path: Path
    size: int
    keys: int


def options() -> rocksdict.Options:
    """Return the options of files that every store of Faust can read: raw bytes, byte order, LZ4.

    Table format 5 keeps block checksums independent of the session id, so that :func:`seal` works.
    """
    table = rocksdict.BlockBasedOptions()
    table.set_format_version(5)
    table.set_checksum_type(rocksdict.ChecksumType.crc32c())
    table.set_bloom_filter(BLOOM_BITS_PER_KEY, block_based=False)
    table.set_block_cache(rocksdict.Cache(_SCRATCH_CACHE_BYTES))
    chosen = rocksdict.Options(raw_mode=True)
    chosen.create_if_missing(True)
    chosen.set_block_based_table_factory(table)
    chosen.set_compression_type(rocksdict.DBCompressionType.lz4())
    return chosen


def write_files(
    items: Iterable[tuple[bytes, bytes | None]],
    folder: Path,
    *,
    max_file_bytes: int = MAX_FILE_BYTES,
) -> list[SstFile]:
    """Write ``items`` (keys strictly ascending) as files of about ``max_file_bytes`` of raw data.

    A value of None writes a tombstone. Cost: about 3M items/s and core, memory of one block. Raises
    SnapshotError on keys out of order.
    """
    folder.mkdir(parents=True, exist_ok=True)
    done: list[SstFile] = []
    iterator = iter(items)
    for first in iterator:
        draft = folder / "draft.sst"
        keys = _fill_file(draft, first, iterator, max_file_bytes)
        done.append(_finish(draft, len(done), keys))
    return done


def _fill_file(
    draft: Path,
    first: tuple[bytes, bytes | None],
    rest: Iterator[tuple[bytes, bytes | None]],
    limit: int,
) -> int:
    """Write one file from ``first`` and as much of ``rest`` as fits; return its number of keys."""
    writer = rocksdict.SstFileWriter(options())
    keys = size = 0
    try:
        writer.open(str(draft))
        for key, value in itertools.chain((first,), rest):
            keys += 1
            if value is None:
                del writer[key]
                size += len(key)
            else:
                writer[key] = value
                size += len(key) + len(value)
            if size >= limit:
                break
        writer.finish()
    except Exception as error:  # rocksdict raises bare Exception
        raise SnapshotError(f"{draft}: {error}") from error
    return keys


def _finish(draft: Path, index: int, keys: int) -> SstFile:
    """Seal the draft and name it by its index and contents, so that different files never share a name."""
    seal(draft)
    with open(draft, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    path = draft.with_name(f"{index:06d}-{digest[:16]}.sst")
    draft.rename(path)
    return SstFile(path.name, path, path.stat().st_size, keys)


def digest_files(paths: Iterable[Path]) -> tuple[str, int]:
    """Return (sha256 over the files' bytes in order, total bytes), as in a manifest."""
    digest, size = hashlib.sha256(), 0
    buffer = bytearray(1 << 20)
    view = memoryview(buffer)
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            while count := file.readinto(view):
                digest.update(view[:count])
                size += count
    return digest.hexdigest(), size


@contextlib.contextmanager
def scratch_database(beside: Path | None = None) -> Iterator[rocksdict.Rdict]:
    """Provide an empty database in a temporary folder (in ``beside`` if given), removed afterwards.

    Raises SnapshotError if the database cannot be created, for example on a full disk.
    """
    with tempfile.TemporaryDirectory(prefix="faust-assigner-sst-", dir=beside) as folder:
        chosen = options()
        chosen.set_disable_auto_compactions(True)
        try:
            database = rocksdict.Rdict(folder, chosen)
        except Exception as error:  # rocksdict raises bare Exception
            raise SnapshotError(f"{folder}: {error}") from error
        try:
            yield database
        finally:
            database.close()


def ingest(database: rocksdict.Rdict, paths: Sequence[Path], *, move: bool = False) -> None:
    """Add files to ``database`` in one atomic step; rows of later files and later calls replace earlier rows.

    With ``move`` the files are moved instead of copied if the database is on the same file system.
    """
    how = rocksdict.IngestExternalFileOptions()
    how.set_move_files(move)
    try:
        database.ingest_external_file([str(path) for path in paths], how)
    except Exception as error:  # rocksdict raises bare Exception
        raise SnapshotError(f"{', '.join(path.name for path in paths)}: {error}") from error


def is_empty(database: rocksdict.Rdict) -> bool:
    """Return whether ``database`` has no key at all, not even Faust's offset."""
    iterator = database.iter()
    iterator.seek_to_first()
    if iterator.valid():
        return False
    iterator.status()  # raises if the first block is unreadable
    return True


def raise_if_cut(database: rocksdict.Rdict, last: bytes | None) -> None:
    """Raise RocksDB's error if an iteration ended at an unreadable block.

    rocksdict's iterators end at such a block without an error, as if no more rows followed. ``last`` is the
    last key that the iteration returned, None for none.
    """
    cursor = database.iter()
    if last is None:
        cursor.seek_to_first()
    else:
        cursor.seek(last)
    for _ in range(_STEPS):
        if cursor.valid():
            cursor.next()
    try:
        if not cursor.valid():
            cursor.status()
    finally:
        # Otherwise the error's traceback keeps the cursor, which keeps the files locked after their close.
        del cursor


def read_items(paths: Sequence[Path], beside: Path | None = None) -> Iterator[tuple[bytes, bytes]]:
    """Yield all items of the files in key order, with Faust's offset key.

    A copy of the files is made in ``beside``, or in the system's temporary folder.
    """
    with scratch_database(beside) as database:
        ingest(database, paths)
        last = None
        for last, value in database.items():
            yield last, value
        raise_if_cut(database, last)

"""The layers of a snapshot: a first layer with all rows, then layers of changes; a later layer wins.

    previous layers + changed rows -> one more layer
                                   -> the changes of all layers in one layer, if the layers are too many
                                   -> new files for the changed key ranges of the first layer, if
                                   the changes are too large

An unchanged file keeps its name, so the next snapshot lists the file and needs no copy.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import rocksdict

from faust_assigner.snapshots.sst import SstFile, ingest, scratch_database, write_files

#: The layers of changes that a restore may have to load after the first layer.
DEFAULT_MAX_LAYERS = 8
#: If the size of the changes exceeds this share of the first layer's size, changed ranges get new files.
MAX_CHANGED_SHARE = 0.5
#: The number of rows whose previous values are looked up together.
_ROWS = 8192

Layers = tuple[tuple[SstFile, ...], ...]
#: A key and its value; None deletes.
Row = tuple[bytes, bytes | None]


@dataclass(frozen=True)
class Base:
    """A previous snapshot on this machine: its layers, the oldest first, and its number of live keys."""

    layers: Layers
    keys: int


def extend(
    base: Base, rows: Iterable[Row], folder: Path, *, max_layers: int, max_file_bytes: int
) -> tuple[Layers, int]:
    """Apply ``rows`` (keys ascending) to ``base``; return (the layers, the number of live keys).

    New files are in ``folder/out``. The layers together have the rows that one layer would have. Cost: one
    look-up for each row; a merge reads all rows, about 1M rows/s.
    """
    out = folder / "out"
    out.mkdir(parents=True, exist_ok=True)
    keys = _KeyCount(base.keys)
    with scratch_database(folder) as state:
        ingest(state, [file.path for layer in base.layers for file in layer])
        changed = keys.counted(_differing_rows(state, rows))
        newest = tuple(write_files(changed, out, max_file_bytes=max_file_bytes))
        layers = (*base.layers, newest)
        if len(layers) - 1 > max_layers or _are_changes_large(layers[1:], layers[0]):
            ingest(state, [file.path for file in newest])
            _remove_files(newest)
            layers = _merge_changes(layers[0], state, folder, max_layers, max_file_bytes)
    return layers, keys.total


def _remove_files(files: Iterable[SstFile]) -> None:
    for file in files:
        file.path.unlink()


def _are_changes_large(changes: Iterable[Iterable[SstFile]], first: Iterable[SstFile]) -> bool:
    size = sum(file.size for layer in changes for file in layer)
    return size > MAX_CHANGED_SHARE * sum(file.size for file in first)


def _merge_changes(
    first: Sequence[SstFile],
    state: rocksdict.Rdict,
    folder: Path,
    max_layers: int,
    max_file_bytes: int,
) -> Layers:
    """Merge all changes into one layer, or replace the changed ranges of the first layer by new files."""
    out = folder / "out"
    with scratch_database(folder) as bottom:
        ingest(bottom, [file.path for file in first])
        starts = sorted(file["start_key"] for file in bottom.live_files())
        touched: set[int] = set()
        changes = _note_ranges(_rows_between(bottom.items(), state.items()), starts, touched)
        merged = tuple(write_files(changes, out, max_file_bytes=max_file_bytes))
    if max_layers and not _are_changes_large([merged], first):
        return tuple(first), merged
    _remove_files(merged)
    anew: list[SstFile] = []
    for is_touched, numbers in itertools.groupby(range(len(first)), touched.__contains__):
        ranges = list(numbers)
        if is_touched:
            after = ranges[-1] + 1
            rows = _rows_in_range(
                state,
                starts[ranges[0]] if ranges[0] else None,
                starts[after] if after < len(starts) else None,
            )
            anew += write_files(rows, out, max_file_bytes=max_file_bytes)
        else:
            anew += (first[number] for number in ranges)
    return (tuple(anew),)


class _KeyCount:
    """The number of live keys, without Faust's offset key."""

    def __init__(self, total: int) -> None:
        self.total = total

    def counted(self, changes: Iterable[tuple[bytes, bytes | None, bytes | None]]) -> Iterator[Row]:
        """Count ``changes`` (key, old value, new value) and yield them as rows.

        Faust's offset key does not change the count, because every state has this key.
        """
        for key, old, new in changes:
            self.total += (new is not None) - (old is not None)
            yield key, new


def _differing_rows(
    state: rocksdict.Rdict, rows: Iterable[Row]
) -> Iterator[tuple[bytes, bytes | None, bytes | None]]:
    """Yield (key, old value, new value) of the rows whose value in ``state`` differs."""
    rows = iter(rows)
    while some := list(itertools.islice(rows, _ROWS)):
        before = state.get([key for key, _ in some])
        for (key, new), old in zip(some, before, strict=True):
            if old != new:
                yield key, old, new


def _rows_between(
    before: Iterable[tuple[bytes, bytes]], after: Iterable[tuple[bytes, bytes]]
) -> Iterator[Row]:
    """Yield the rows that turn ``before`` into ``after``; all keys are ascending."""
    old, new = iter(before), iter(after)
    has, gets = next(old, None), next(new, None)
    while has or gets:
        if gets is None or (has is not None and has[0] < gets[0]):
            yield has[0], None  # type: ignore[index]
            has = next(old, None)
        elif has is None or gets[0] < has[0]:
            yield gets
            gets = next(new, None)
        else:
            if has != gets:
                yield gets
            has, gets = next(old, None), next(new, None)


def _note_ranges(rows: Iterable[Row], starts: Sequence[bytes], touched: set[int]) -> Iterator[Row]:
    """Yield ``rows`` unchanged; add the number of each row's key range to ``touched``.

    Range 0 also takes the keys before its start.
    """
    for row in rows:
        touched.add(max(0, bisect_right(starts, row[0]) - 1))
        yield row


def _rows_in_range(
    state: rocksdict.Rdict, start: bytes | None, end: bytes | None
) -> Iterator[tuple[bytes, bytes]]:
    """The rows with ``start <= key < end``; None means no bound."""
    rows = state.items(from_key=start)
    return rows if end is None else itertools.takewhile(lambda row: row[0] < end, rows)

"""Operations on Arrow batches of changelog records: last row per key, sorted rows, rows that are JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from faust_assigner.snapshots.json_rows import AUTO, JSON, RAW, json_types, unreadable_rows
from faust_assigner.snapshots.layers import Row

if TYPE_CHECKING:
    import pyarrow as pa

#: The number of rows that are converted to Python objects at a time.
_ROWS = 8192


class JsonColumns:
    """Checks keys and values: drops the rows whose key or value must be JSON but is not."""

    def __init__(self, codecs: tuple[str, str]) -> None:
        self._codecs = dict(zip(("key", "value"), codecs, strict=True))
        #: Column -> the JSON types seen so far, only for columns that must be JSON.
        self._types: dict[str, set[str]] = {
            column: set() for column, codec in self._codecs.items() if codec != RAW
        }
        #: The number of rows that were left out.
        self.unreadable = 0

    def types_of(self, column: str) -> frozenset[str] | None:
        """The JSON types of a column; None if the column is not checked, or has no payload."""
        is_checked = column in self._types and self._codecs[column] != AUTO
        return frozenset(self._types[column]) if is_checked else None

    def readable(self, batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """Return ``batches``, in offset order, without the rows that are not JSON."""
        if batches and AUTO in self._codecs.values():
            self._choose(last_per_key(batches))
        if not batches or not self._types or self._note_types(last_per_key(batches)):
            return batches
        # This rare case is slow: drop the records that are not JSON, so that earlier records of their
        # keys count.
        kept = [self._filter(batch) for batch in batches]
        self._note_types(last_per_key(kept))
        return kept

    def _choose(self, batch: pa.RecordBatch) -> None:
        """Choose JSON or raw bytes for each ``auto`` column by its first payloads."""
        for column, codec in self._codecs.items():
            payloads = batch.column(column).drop_null().to_pylist() if codec == AUTO else []
            if payloads:
                wrong = len(unreadable_rows(payloads))
                self._codecs[column] = RAW if 2 * wrong > len(payloads) else JSON
                if self._codecs[column] == RAW:
                    del self._types[column]

    def _note_types(self, batch: pa.RecordBatch) -> bool:
        """Return whether all rows of a batch with unique keys are JSON; if so, note their types."""
        seen: dict[str, set[str]] = {}
        for column, types in self._types.items():
            seen[column] = set(types)
            for start in range(0, len(batch), _ROWS):
                payloads = batch.column(column).slice(start, _ROWS).drop_null().to_pylist()
                found = json_types(payloads)
                if found is None:
                    return False
                seen[column] |= found
        self._types = seen
        return True

    def _filter(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of ``batch`` that are JSON; count the other rows."""
        import pyarrow as pa

        wrong = sorted(
            {
                row
                for column in self._types
                for row in unreadable_rows(batch.column(column).to_pylist())
            }
        )
        if not wrong:
            return batch
        self.unreadable += len(wrong)
        kept = np.ones(len(batch), bool)
        kept[wrong] = False
        return batch.filter(pa.array(kept))


def batch_of(keys: object, values: object) -> pa.RecordBatch:
    """Build a batch with two columns of bytes from Arrow arrays of any binary type or from sequences."""
    import pyarrow as pa

    columns = [
        (column if isinstance(column, pa.Array) else pa.array(column, pa.binary())).cast(
            pa.binary()
        )
        for column in (keys, values)
    ]
    return pa.RecordBatch.from_arrays(columns, names=["key", "value"])


def last_per_key(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """The last row of each key, in order of first appearance; rows without a key are dropped."""
    import pyarrow as pa

    encoded = pa.concat_arrays([batch.column("key") for batch in batches]).dictionary_encode()
    keys = encoded.dictionary
    # Rows without a key get one additional code. Of the rows with one code, NumPy keeps the last row.
    last = np.empty(len(keys) + 1, np.int64)
    last[encoded.indices.fill_null(len(keys)).to_numpy()] = np.arange(len(encoded))
    values = pa.chunked_array([batch.column("value") for batch in batches]).take(
        pa.array(last[:-1])
    )
    value = values.chunk(0) if values.num_chunks == 1 else pa.concat_arrays(values.chunks)
    return pa.RecordBatch.from_arrays([keys, value], names=["key", "value"])


def ascending(batch: pa.RecordBatch) -> Iterator[Row]:
    """Yield the rows of a batch, keys ascending."""
    import pyarrow.compute as pc

    order = pc.array_sort_indices(batch.column("key"))
    for start in range(0, len(order), _ROWS):
        rows = batch.take(order.slice(start, _ROWS))
        yield from zip(*(column.to_pylist() for column in rows.columns), strict=True)

"""Parse ledger lines into Arrow batches: a struct per accepted line, or the reason of a refusal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from faust_assigner.ledger import TABLES, Refusal, parse
from faust_assigner.pipeline.ledgers.chunks import Chunk, LedgerDamaged, read_lines
from faust_assigner.pipeline.ledgers.refusals import REASON_CHARACTERS
from faust_assigner.pipeline.schema import PARSED_ARROW

#: A batch is returned at the limit of rows or bytes, so that long lines need little memory too.
BATCH_ROWS = 8192
BATCH_BYTES = 8 * 1024 * 1024


class _Batch:
    """The rows of one future Arrow batch, by column."""

    def __init__(self) -> None:
        self.places: list[tuple[str, int, int, int]] = []
        self.reasons: list[str | None] = []
        #: Table -> (the indices of its rows in ``places``, the rows).
        self.tables: dict[str, tuple[list[int], list[dict[str, object]]]] = {
            name: ([], []) for name in TABLES
        }
        self.bytes = 0

    def add_line(self, place: tuple[str, int, int, int], line: bytes) -> None:
        """Parse ``line`` and add its row or its reason; a blank line adds no row."""
        parsed = parse(line)
        if parsed is None:
            return
        self.bytes += len(line)
        if isinstance(parsed, Refusal):
            self.refuse(place, parsed.reason)
        else:
            at, rows = self.tables[parsed.table]
            at.append(len(self.places))
            rows.append(parsed.values)
            self._add(place, None)

    def refuse(self, place: tuple[str, int, int, int], reason: str) -> None:
        """Add the reason why the line at ``place`` was refused."""
        self._add(place, reason[:REASON_CHARACTERS])

    def add_close(self, chunk: Chunk, lines: int) -> None:
        """Add the closing row of ``chunk``; ``lines`` lines start in the chunk."""
        self._add((chunk.name, chunk.start, chunk.end, lines), None)

    def _add(self, place: tuple[str, int, int, int], reason: str | None) -> None:
        self.places.append(place)
        self.reasons.append(reason)

    @property
    def is_full(self) -> bool:
        return len(self.places) >= BATCH_ROWS or self.bytes >= BATCH_BYTES

    def to_arrow(self) -> pa.RecordBatch:
        places = list(zip(*self.places, strict=True)) or [(), (), (), ()]
        plain = [
            pa.array(column, type=kind)
            for column, kind in zip([*places, self.reasons], PARSED_ARROW.types[:5], strict=True)
        ]
        structs = [self._structs(name) for name in TABLES]
        return pa.RecordBatch.from_arrays([*plain, *structs], schema=PARSED_ARROW)

    def _structs(self, table: str) -> pa.Array:
        """Return the table's rows at their indices, else nulls; whole columns are built, which is cheaper."""
        struct = PARSED_ARROW.field(table).type
        at, rows = self.tables[table]
        if not rows:
            return pa.nulls(len(self.places), struct)
        columns = [pa.array([row[field.name] for row in rows], type=field.type) for field in struct]
        index: list[int | None] = [None] * len(self.places)
        for number, place in enumerate(at):
            index[place] = number
        return pa.StructArray.from_arrays(columns, fields=list(struct)).take(
            pa.array(index, pa.int32())
        )


def parse_chunks(
    chunks: Iterable[Chunk], read: Callable[[Chunk], Iterator[tuple[int, bytes]]] = read_lines
) -> Iterator[pa.RecordBatch]:
    """Read and parse ``chunks`` of files; each chunk ends with a closing row (see ``schema``)."""
    batch = _Batch()
    for chunk in chunks:
        lines = 0
        try:
            for position, line in read(chunk):
                lines += 1
                batch.add_line((chunk.name, chunk.start, position, lines), line)
                if batch.is_full:
                    yield batch.to_arrow()
                    batch = _Batch()
        except LedgerDamaged as error:
            lines += 1
            batch.refuse((chunk.name, chunk.start, error.position, lines), str(error))
        batch.add_close(chunk, lines)
    yield batch.to_arrow()


def parse_messages(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Parse messages of topics (file, pos, value): a message is a line, its offset is the line number."""
    for messages in batches:
        batch = _Batch()
        columns = (messages.column(name).to_pylist() for name in ("file", "pos", "value"))
        for file, offset, value in zip(*columns, strict=True):
            # A tombstone adds no row. The offset identifies a message, so the chunk is always 0.
            batch.add_line((file, 0, offset, offset), value or b"")
        yield batch.to_arrow()

"""The refused lines of a visit, with their line numbers, and the refused lines of earlier visits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from faust_assigner.ledger import TABLES
from faust_assigner.pipeline.ledgers.progress import Visit
from faust_assigner.pipeline.ledgers.refusals import Refused
from faust_assigner.pipeline.schema import HISTORY, arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The maximum number of refused lines that are stored with their places; further lines are only counted.
KEPT = 100_000
_PLACE = ["file", "chunk", "pos", "line", "reason"]


@dataclass
class RefusedLines:
    """The refused lines of a visit, and the closing rows of its chunks."""

    #: The numbers of accepted and refused lines.
    counts: Refused = field(default_factory=Refused)
    #: (file, chunk, pos, line within the chunk, reason)
    refused: list[tuple[str, int, int, int, str]] = field(default_factory=list)
    #: file -> chunk -> the chunk's number of lines.
    chunks: dict[str, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))

    def watch(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Collect the refused lines of ``batches`` (``PARSED_ARROW``) and yield the batches unchanged."""
        for batch in batches:
            nothing = reduce(pc.and_, (pc.is_null(batch.column(table)) for table in TABLES))
            rest = batch.select(_PLACE).filter(nothing)
            self.counts.accepted += len(batch) - len(rest)
            for row in rest.to_pylist():
                self.take(**row)
                if row["reason"] is not None:
                    self.counts.refuse(row["file"], row["line"], row["reason"])
            yield batch

    def take(self, file: str, chunk: int, pos: int, line: int, reason: str | None) -> None:
        """Add a row without a table: a refused line, or the closing row of a chunk."""
        if reason is None:
            self.chunks[file][chunk] = line
        elif len(self.refused) < KEPT:
            self.refused.append((file, chunk, pos, line, reason))

    def lines(self) -> dict[str, int]:
        """Return file -> the number of lines found in the file."""
        return {file: sum(chunks.values()) for file, chunks in self.chunks.items()}

    def rows(self, visit: Visit) -> list[tuple[str, int, str]]:
        """Return (file, line number in the file, reason) of each refused line, without unfinished lines."""
        found = []
        for file, chunk, pos, line, reason in self.refused:
            progress = visit.files.get(file)
            if progress is not None and progress.at <= pos < progress.size:
                continue
            before = sum(count for start, count in self.chunks[file].items() if start < chunk)
            found.append((file, visit.lines_before.get(file, 0) + before + line, reason))
        return sorted(found)


def table_of(rows: Iterable[tuple[str, int, str]]) -> pa.Table:
    """Return refused lines as the table ``quarantine``."""
    schema = arrow_schema(HISTORY["quarantine"])
    told = [dict(zip(schema.names, row, strict=True)) for row in rows]
    return pa.Table.from_pylist(told[:KEPT], schema=schema)


def joined(stand: pa.Table, rows: Iterable[tuple[str, int, str]]) -> pa.Table:
    """Join the stored refused lines and ``rows``, each line once; keep the newest ``KEPT`` lines."""
    both: Mapping[tuple[str, int, str], None] = dict.fromkeys(
        [*(tuple(row.values()) for row in stand.to_pylist()), *rows]
    )
    return table_of(sorted(list(both)[-KEPT:]))

"""A small ledger without Spark: the same files, the same parser, one line after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from faust_assigner.ledger import Refusal, Row, parse
from faust_assigner.pipeline.ledgers.files import Chunk, LedgerPathError, absolute, find_files, read_lines


@dataclass
class Refused:
    """How many lines no table took, and the first reason."""

    lines: int = 0
    first: str | None = field(default=None)

    def count(self, file: str, refusal: Refusal) -> None:
        """One more line that was refused."""
        self.lines += 1
        if self.first is None:
            self.first = f"{file}: {refusal.reason}"


def accepted_rows(ledgers: Sequence[str], refused: Refused | None = None) -> Iterator[Row]:
    """The accepted lines of ``ledgers`` (files, folders, globs); refused ones are counted.

    Raises LedgerPathError for a path that is not there, and for a topic.
    """
    topics = [ledger for ledger in ledgers if ledger.startswith("kafka://")]
    if topics:
        raise LedgerPathError(f"{topics[0]}: a topic is read on Spark, leave out --no-spark")
    for file in find_files([absolute(path) for path in ledgers]):
        for _, line in read_lines(Chunk(file.name, 0, file.size)):
            found = parse(line)
            if isinstance(found, Row):
                yield found
            elif isinstance(found, Refusal) and refused is not None:
                refused.count(file.name, found)

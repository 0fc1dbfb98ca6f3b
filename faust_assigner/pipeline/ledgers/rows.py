"""A small ledger without Spark: the same files, the same parser, one line after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from faust_assigner.ledger import Refusal, Row, parse
from faust_assigner.pipeline.ledgers.files import (
    Chunk,
    LedgerDamaged,
    LedgerFile,
    LedgerPathError,
    absolute,
    find_files,
    read_lines,
)
from faust_assigner.pipeline.ledgers.period import Period
from faust_assigner.pipeline.ledgers.refusals import Refused, Tolerance


def read_here(
    ledgers: Sequence[str], tolerance: Tolerance, period: Period | None = None
) -> tuple[list[Row], Refused]:
    """Every accepted line of ``ledgers`` (of ``period``), in memory, and the count of the others.

    Raises LedgerPathError and, where ``tolerance`` does not take so many refused lines, TooManyRefused.
    """
    refused = Refused()
    rows = list(accepted_rows(ledgers, refused, period))
    tolerance.check(refused)
    return (period or Period()).rows(rows), refused


def accepted_rows(
    ledgers: Sequence[str],
    refused: Refused | None = None,
    period: Period | None = None,
) -> Iterator[Row]:
    """The accepted lines of ``ledgers`` (files, folders, globs); all are counted in ``refused``.

    Files that hold nothing of ``period`` are not read; of those that do, every line is given.

    Raises LedgerPathError for a path that is not there, and for a topic.
    """
    topics = [ledger for ledger in ledgers if ledger.startswith("kafka://")]
    if topics:
        raise LedgerPathError(f"{topics[0]}: a topic is read on Spark, leave out --no-spark")
    refused = Refused() if refused is None else refused
    files = find_files([absolute(path) for path in ledgers])
    for file in (period or Period()).files(files):
        yield from _rows_of(file, refused)


def _rows_of(file: LedgerFile, refused: Refused) -> Iterator[Row]:
    number = 0
    try:
        for _, line in read_lines(Chunk(file.name, 0, file.size, file.inode)):
            number += 1
            found = parse(line)
            if isinstance(found, Row):
                refused.accepted += 1
                yield found
            elif isinstance(found, Refusal):
                refused.refuse(file.name, number, found.reason)
    except LedgerDamaged as error:
        refused.refuse(file.name, number + 1, str(error))

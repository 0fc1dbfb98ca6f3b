"""The identity of a file between visits, and blank records of a topic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from faust_assigner.ledger import encode
from faust_assigner.pipeline.cluster import Cluster
from faust_assigner.pipeline.ledgers import progress, rows
from faust_assigner.pipeline.ledgers.files import LedgerFile
from faust_assigner.pipeline.ledgers.progress import FilePosition, _continued, _digest
from faust_assigner.pipeline.ledgers.refusals import Refused
from faust_assigner.pipeline.ledgers.rows import accepted_rows

HEAD = b"the same head as before"
BEFORE = FilePosition(5, 10, _digest(HEAD[:8]), 8, "monday", 0, 3)
FILE = LedgerFile("memory://a", 12, "tuesday", 0)


@pytest.mark.parametrize(
    ("file", "before", "known", "found"),
    [
        # Without inodes the name identifies a file; a file of equal size is the same file, too.
        (FILE, BEFORE, {}, BEFORE),
        (replace(FILE, size=10), BEFORE, {}, BEFORE),
        (replace(FILE, size=9), BEFORE, {}, None),
        (FILE, None, {"b": BEFORE}, None),
        (FILE, replace(BEFORE, head=_digest(b"another")), {}, None),
        # After a rotation the inode identifies the file under its new name.
        (replace(FILE, inode=4), None, {"b": replace(BEFORE, inode=4)}, replace(BEFORE, inode=4)),
        (replace(FILE, inode=4), None, {"b": replace(BEFORE, inode=5)}, None),
        (
            replace(FILE, inode=4),
            replace(BEFORE, inode=9, head=_digest(b"the new file")),
            {"c": replace(BEFORE, inode=4, size=99), "b": replace(BEFORE, inode=4, at=7)},
            replace(BEFORE, inode=4, at=7),
        ),
        # The state under the name itself comes first.
        (
            replace(FILE, inode=4),
            replace(BEFORE, inode=4, lines=8),
            {"b": replace(BEFORE, inode=4, at=7)},
            replace(BEFORE, inode=4, lines=8),
        ),
    ],
)
def test_a_file_is_continued_if_it_grew_and_its_head_is_the_same(
    monkeypatch: pytest.MonkeyPatch,
    file: LedgerFile,
    before: FilePosition | None,
    known: dict[str, FilePosition],
    found: FilePosition | None,
) -> None:
    """A smaller file, another head and another inode are a new file, which is read from its start."""
    monkeypatch.setattr(progress, "read_head", lambda name, count: HEAD[:count])
    assert _continued(file, before, known) == found


def test_a_blank_record_of_a_topic_is_neither_accepted_nor_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A refused record is counted with its partition and offset; the others are rows in order."""
    sample = {
        "group_id": "g", "topic": "t", "end_offset": 4, "committed_offset": 3, "bytes_in": 2,
        "records_in": 1, "cpu_ms": 0.5, "state_bytes": 6, "ts": 1_000.0,
    }  # fmt: skip
    lines = [encode("partition_sample", {**sample, "partition": number}) for number in (8, 2)]

    def read(connection: Any, topic: str, take: Any) -> None:
        for offset, line in enumerate((lines[0], b" \t", b"{oops", lines[1]), 5):
            take(offset % 3, offset, line)

    monkeypatch.setattr(rows, "read_lines_of", read)
    monkeypatch.setattr(rows, "run_request", lambda connection, question: question)
    monkeypatch.setattr(Cluster, "connection", lambda self: {})
    refused = Refused(keep=9)
    found = list(accepted_rows(["kafka://h:1/ledger"], refused))
    assert [row.values["partition"] for row in found] == [8, 2]
    assert (refused.accepted, refused.lines) == (2, 1)
    ((file, line, reason),) = refused.kept
    assert (file, line) == ("kafka://h:1/ledger/1", 7)
    assert refused.first == f"{file}:{line}: {reason}"

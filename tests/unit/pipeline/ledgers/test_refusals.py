"""The limit of refused lines, the kept refusals, and the current decision."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from faust_assigner.errors import ConfigError
from faust_assigner.ledger import Row
from faust_assigner.pipeline.ledgers import parse as parse_module
from faust_assigner.pipeline.ledgers.chunks import Chunk, LedgerDamaged
from faust_assigner.pipeline.ledgers.current import current_here
from faust_assigner.pipeline.ledgers.parse import parse_chunks, parse_messages
from faust_assigner.pipeline.ledgers.refusals import (
    EmptyLedger,
    Refused,
    Tolerance,
    TooManyRefused,
    refuse_empty,
)
from faust_assigner.pipeline.ledgers.rows import read_here
from tests.integration.spark.ledgers import DECISION, SAMPLE, Ledger, bad, good


def test_a_share_is_of_all_lines() -> None:
    """One of a hundred lines is exactly one percent."""
    Tolerance.parse("1%").check(Refused(accepted=99, lines=1))
    with pytest.raises(TooManyRefused, match="2 of 100 lines refused"):
        Tolerance.parse("1%").check(Refused(accepted=98, lines=2))
    with pytest.raises(TooManyRefused):
        Tolerance.parse("0").check(Refused(accepted=98, lines=1))


def test_only_so_many_refused_lines_are_kept_and_all_are_counted() -> None:
    """A million kept lines would exhaust the driver's memory."""
    refused = Refused(keep=2)
    for number in range(1, 6):
        refused.refuse("f", number, "why" * 200)
    assert (refused.lines, [line for _, line, _ in refused.kept]) == (5, [1, 2])
    assert all(len(reason) == 300 for _, _, reason in refused.kept)
    assert refused.first is not None
    assert refused.first.startswith("f:1: why")


def test_an_empty_ledger_replaces_nothing_good() -> None:
    """An empty ledger without a former result is accepted; a ledger of refused lines is not."""
    refuse_empty(Refused(), wanted=None, replaces=None)
    refuse_empty(Refused(), wanted=False, replaces="out")
    for refused, wanted, replaces in (
        (Refused(), None, "out"), (Refused(), True, None), (Refused(lines=3), None, None)
    ):  # fmt: skip
        with pytest.raises(EmptyLedger):
            refuse_empty(refused, wanted=wanted, replaces=replaces)


def test_what_is_read_here_is_held_to_the_tolerance(tmp_path: Path) -> None:
    """The error has the file and the line number, counted from one."""
    ledger = Ledger(tmp_path)
    ledger.write("w.jsonl", [good(DECISION), bad(b"{oops", "JSON")])
    rows, refused = read_here([str(tmp_path)], Tolerance())
    assert (len(rows), refused.lines) == (1, 1)
    assert refused.first is not None
    assert "w.jsonl:2: " in refused.first
    with pytest.raises(TooManyRefused):
        read_here([str(tmp_path)], Tolerance(most=0))


def decided(name: str, ts: int) -> Row:
    """Return a decision with one member."""
    member = {"member_id": "m", "rack": None, "capacity": 1.0, "epoch": 1, "instance_id": None}
    values = {"group_id": "g", "decision_id": name, "ts": ts, "config": {}, "members": [member]}
    return Row("decision", values)


def owned(decision: str, partition: int) -> Row:
    """Return an active placement of the member."""
    values: dict[str, Any] = {
        "group_id": "g",
        "decision_id": decision,
        "topic": "t",
        "partition": partition,
    }
    return Row("assignment", {**values, "role": "active", "member_id": "m"})


def test_the_newest_decision_is_the_current_one_and_its_rows_alone_count() -> None:
    """The files' order does not matter; of two decisions at a time the greater id counts."""
    rows = [
        decided("b", 1),
        decided("a", 2),
        decided("c", 2),
        owned("a", 1),
        owned("c", 2),
        owned("b", 3),
    ]
    for order in (rows, rows[::-1]):
        (current,) = current_here(order)
        assert current.decision_id == "c"
        assert {t: list(map(int, n)) for t, n in current.members[0].actives.items()} == {"t": [2]}


def test_each_row_stands_at_its_own_lines_place() -> None:
    """Each line yields a struct, a reason or no row, at its own position."""
    lines = [
        good(DECISION).data,
        b"{oops",
        None,
        good(SAMPLE).data,
        good({**DECISION, "policy": "q"}).data,
    ]
    messages = pa.RecordBatch.from_pydict(
        {"file": ["t/0"] * 5, "pos": [7, 8, 9, 10, 11], "value": lines}
    )
    rows = pa.Table.from_batches(parse_messages([messages])).to_pylist()
    told = [(row["pos"], row["decision"] and row["decision"]["policy"], bool(row["partition_sample"]),
             bool(row["reason"])) for row in rows]  # fmt: skip
    assert told == [(7, "p", False, False), (8, None, False, True), (10, None, True, False),
                    (11, "q", False, False)]  # fmt: skip


def lines_of(chunk: Chunk) -> Iterator[tuple[int, bytes]]:
    """Yield as many good lines as the chunk has bytes; a chunk named "torn" ends with damage."""
    for number in range(chunk.end):
        yield number, good(SAMPLE).data
    if chunk.name == "torn":
        raise LedgerDamaged(chunk.end, "torn " * 200)


@pytest.mark.parametrize(("rows", "lines"), [(2, 1 << 30), (1 << 30, 2)])
def test_batches_end_at_either_bound_and_hold_each_line_once(
    monkeypatch: pytest.MonkeyPatch, rows: int, lines: int
) -> None:
    """A batch ends at the limit of rows or of the lines' bytes."""
    monkeypatch.setattr(parse_module, "BATCH_ROWS", rows)
    monkeypatch.setattr(parse_module, "BATCH_BYTES", lines * len(good(SAMPLE).data))
    batches = list(parse_chunks([Chunk("f", 0, 5)], lines_of))
    assert [len(batch) for batch in batches] == [2, 2, 2]  # the closing row is the last
    found = pa.Table.from_batches(batches).to_pylist()
    assert [row["line"] for row in found if row["partition_sample"]] == [1, 2, 3, 4, 5]


def test_the_place_of_damage_counts_as_a_line_with_a_short_reason() -> None:
    """The damage follows the last good line, and the closing row counts it."""
    (batch,) = parse_chunks([Chunk("torn", 0, 3)], lines_of)
    *_, refused, closing = batch.to_pylist()
    assert (refused["pos"], refused["line"], len(refused["reason"])) == (3, 4, 300)
    assert (closing["line"], closing["reason"]) == (4, None)


def test_all_lines_may_be_refused_on_request() -> None:
    """A share of 100 percent is valid; a larger share is not."""
    Tolerance.parse("100%").check(Refused(accepted=0, lines=7))
    with pytest.raises(ConfigError, match="--max-refused"):
        Tolerance.parse("100.1%")


def test_a_batch_of_messages_gives_only_the_rows_of_its_own_messages() -> None:
    """A topic is read in many batches: a repeated row would be counted twice."""
    line = good(DECISION).data
    batches = [
        pa.RecordBatch.from_pydict({"file": ["t/0"], "pos": [at], "value": [line]})
        for at in (7, 8, 9)
    ]
    assert [batch.to_pydict()["pos"] for batch in parse_messages(batches)] == [[7], [8], [9]]

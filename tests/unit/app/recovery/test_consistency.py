"""Tables against the ends of their changelogs: tables ahead of the end, and false alarms."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest
from faust.exceptions import ConsistencyError
from faust.types import TP

from faust_assigner.app.recovery import consistency as module
from faust_assigner.app.recovery.consistency import ANSWERS, Consistency, _reset_offset

A, B = TP("log", 0), TP("log", 1)
TABLES = dict.fromkeys((A, B), SimpleNamespace(name="counts"))


class Broker:
    """A broker with these high watermarks of A, the last one forever; B ends at 100."""

    def __init__(self, *ends: int) -> None:
        self.ends = list(ends)
        self.asked: list[set[TP]] = []

    async def __call__(self, tps: Collection[TP]) -> dict[TP, int]:
        """Return the next high watermark."""
        self.asked.append(set(tps))
        end = self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]
        return {tp: end if tp == A else 100 for tp in tps}


def consistency(broker: Broker, *, check: bool = True) -> Consistency:
    """Return a comparison for an app with this setting."""
    app = SimpleNamespace(conf=SimpleNamespace(recovery_consistency_check=check))
    return Consistency(app, broker, pause_s=0.0)


async def test_a_table_ahead_of_its_changelog_is_refused(caplog: Any) -> None:
    """The error names table, partition and both offsets; the log also gives the remedy."""
    with pytest.raises(ConsistencyError) as found:
        await consistency(Broker(13)).ahead(TABLES, {A: 40, B: 99}, {A: 13, B: 100})
    for said in (str(found.value), caplog.text):
        assert "Table counts: this worker's rows of partition 0 reach offset 40 of log" in said
        assert "the end offset of this changelog is 13 (40 > 12)" in said
        assert "partition 1" not in said
    assert "remove the files of the partition" in caplog.text
    assert "recovery_consistency_check=False" in caplog.text


async def test_without_the_check_it_is_named_and_goes_on(caplog: Any) -> None:
    """The finding is logged as a warning."""
    asked = consistency(Broker(13), check=False)
    assert await asked.ahead(TABLES, {A: 40, B: 99}, {A: 13, B: 100}) == {A}
    assert [(r.levelname, "The rows are kept" in r.message) for r in caplog.records] == [
        ("WARNING", True)
    ]


@pytest.mark.parametrize(("offset", "is_ahead"), [(11, False), (12, False), (13, True)])
async def test_the_last_offset_is_one_less_than_the_end(offset: int, is_ahead: bool) -> None:
    """A file with the last record is not ahead; a file with the next offset is."""
    asked = consistency(Broker(13), check=False)
    assert (await asked.ahead(TABLES, {A: offset}, {A: 13}) == {A}) is is_ahead


@pytest.mark.parametrize("offset", [0, 1])
async def test_an_empty_changelog_is_behind_any_file(offset: int) -> None:
    """Faust treats offset 0, and the end of a changelog with one record, as unknown."""
    asked = consistency(Broker(0), check=False)
    assert await asked.ahead(TABLES, {A: offset}, {A: 0}) == {A}
    assert await asked.ahead(TABLES, {A: None}, {A: 0}) == set()
    assert await asked.ahead(TABLES, {A: -1}, {A: 0}) == set()


async def test_behind_an_open_transaction_nothing_is_ahead() -> None:
    """Committed readers see the transaction's begin as the end; the high watermark is higher."""
    broker = Broker(50)
    assert await consistency(broker).ahead(TABLES, {A: 40, B: 99}, {A: 13, B: 100}) == set()
    assert broker.asked == [{A}], "the broker is asked once, of what seemed to be ahead"


async def test_a_leader_that_tells_an_old_end_for_a_moment_refuses_nothing() -> None:
    """Several answers in a row must confirm the end."""
    broker = Broker(13, 13, 41)
    assert await consistency(broker).ahead(TABLES, {A: 40}, {A: 13}) == set()
    assert len(broker.asked) == ANSWERS == 3


async def test_the_broker_is_not_asked_where_nothing_seems_to_be_ahead() -> None:
    """Each recovery runs this comparison."""
    broker = Broker(13)
    assert await consistency(broker).ahead(TABLES, {A: 12, B: None}, {A: 13, B: 0}) == set()
    assert broker.asked == []


async def test_a_new_change_below_the_file_is_proof_however_long_the_changelog_is_by_now() -> None:
    """A recreated topic can grow beyond the file within a second."""
    broker = Broker(100)
    asked = consistency(broker)
    asked.doubt(A, 3)
    asked.doubt(A, 4)
    assert asked.doubt_is_new.is_set()
    with pytest.raises(ConsistencyError, match=r"the end offset of this changelog is 4 \(40 > 3\)"):
        await asked.ahead(TABLES, {A: 40}, {A: 100})
    assert broker.asked == []


async def test_the_broker_is_asked_for_the_high_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    """It includes open transactions; committed readers see an earlier end."""
    asked: list[Any] = []

    async def extents_of(connection: Any, tps: Any, *, isolation_level: str) -> Any:
        asked.append((connection, tps, isolation_level))
        return {tp: SimpleNamespace(end=50 + tp.partition) for tp in tps}

    monkeypatch.setattr(module, "extents_of", extents_of)
    monkeypatch.setattr(module, "connection_of", lambda app: "connection")
    app = SimpleNamespace(conf=SimpleNamespace(recovery_consistency_check=True))
    assert await Consistency(app).ahead(TABLES, {A: 40}, {A: 13}) == set()
    assert asked == [("connection", [A], "read_uncommitted")]
    assert await Consistency(app)._high_watermarks({B, A}) == {A: 50, B: 51}
    assert asked[1:] == [("connection", [A, B], "read_uncommitted")]


def test_a_file_that_begins_anew_has_what_is_before_the_first_record() -> None:
    """The first record is read next; the file stores the new offset at once."""
    told: list[Any] = []
    table = SimpleNamespace(data=SimpleNamespace(set_persisted_offset=lambda *at: told.append(at)))
    _reset_offset(table, A, 7)
    assert told == [(A, 6)]


class Answers:
    """A broker with these high watermarks in order; ``acts`` also records the pauses."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: dict[TP, int]) -> None:
        self.answers, self.acts = list(answers), list[Any]()
        monkeypatch.setattr(module.asyncio, "sleep", self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.acts.append(seconds)

    async def __call__(self, tps: Collection[TP]) -> dict[TP, int]:
        """Return the next answer."""
        self.acts.append(list(tps))
        return self.answers.pop(0)

    def of(self, *, check: bool) -> Consistency:
        """Return a comparison on this broker, with 0.25 s between two answers."""
        app = SimpleNamespace(conf=SimpleNamespace(recovery_consistency_check=check))
        return Consistency(app, self, pause_s=0.25)


async def test_each_answer_asks_for_those_still_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer but the first follows a pause; the last answer is the reported end."""
    c, d = TP("log", 2), TP("log", 3)
    tables = {tp: SimpleNamespace(name=name) for tp, name in zip((A, B, c, d), "abcd", strict=True)}
    broker = Answers(monkeypatch, {A: 5, B: 6, c: 7}, {A: 15, B: 41, c: 17}, {A: 25, c: 27})
    asked, told = broker.of(check=False), list[Any]()
    monkeypatch.setattr(asked, "_log_ahead", told.append)
    offsets, ends = {A: 40, B: 40, c: 27, d: 9}, {c: 4, B: 3, A: 2, d: 10}
    assert await asked.ahead(tables, offsets, ends) == {A, c}
    assert broker.acts == [[c, B, A], 0.25, [c, B, A], 0.25, [c, A]]
    assert told == [module.Ahead("a", A, 40, 25), module.Ahead("c", c, 27, 27)]


async def test_all_that_are_doubted_are_ahead_without_a_question(
    monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """A partition confirmed by the broker is added; a doubt about another partition is kept."""
    c, d = TP("log", 2), TP("log", 3)
    tables = {tp: SimpleNamespace(name=f"t{tp.partition}") for tp in (A, B, c)}
    broker = Answers(monkeypatch, {c: 8}, {c: 8}, {c: 8})
    asked = broker.of(check=True)
    for tp, offset in ((A, 3), (B, 0), (d, 5)):
        asked.doubt(tp, offset)
    with pytest.raises(ConsistencyError) as found:
        await asked.ahead(tables, {A: 40, B: 50, c: 60}, {c: 8, B: 1, A: 2})
    assert broker.acts == [[c], 0.25, [c], 0.25, [c]]
    lines = [record.getMessage() for record in caplog.records]
    assert [record.levelname for record in caplog.records] == ["ERROR"] * 3
    assert [line.partition(":")[0] for line in lines] == ["Table t0", "Table t1", "Table t2"]
    assert "offset 50 of log, but the end offset of this changelog is 1 (50 > 0)" in lines[1]
    assert lines[0].startswith(f"{found.value}. This worker ends.")
    assert asked.doubted == {A: 3, B: 0, d: 5}


def test_each_doubt_wakes_the_comparison() -> None:
    """A second doubt wakes it too; the partition's first offset stays."""
    asked = consistency(Broker(1))
    assert not asked.doubt_is_new.is_set()
    asked.doubt(A, 0)
    asked.doubt_is_new.clear()
    asked.doubt(A, 7)
    assert asked.doubt_is_new.is_set()
    assert asked.doubted == {A: 0}

"""The lags of several copies over several requests, each with its own times."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from faust_assigner.app.metrics.copies import Copies
from faust_assigner.app.rebalance import copy_offsets

A, B, C = (TP("log", number) for number in (2, 0, 1))


class Worker:
    """A worker with copies; ``ends`` and ``read`` are the answers to the next request."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.standbys = 100.0, {A, B, C}
        self.ends: dict[TP, int] = {}
        self.read: dict[TP, int] = {}
        self.asked: list[Any] = []
        self.offsets: dict[TP, int | None] = {A: None, B: 15, C: 2}
        progress = SimpleNamespace(next_offset=lambda tp: 5 if tp == A else 0)
        self.recovery = SimpleNamespace(standby_offsets=self.offsets, progress=progress)
        self.app: Any = SimpleNamespace(
            assignor=SimpleNamespace(assigned_standbys=lambda: self.standbys),
            tables=SimpleNamespace(recovery=self.recovery),
            _consumer="a consumer",
        )
        self.copies = Copies(self.app, lambda: self.now)
        monkeypatch.setattr(copy_offsets, "ends_of", self._ends_of)
        monkeypatch.setattr(copy_offsets, "read_to", self._read_to)

    async def _ends_of(self, app: Any, tps: list[TP]) -> dict[TP, int]:
        self.asked.append(tps)
        self.now += 0.5  # records may arrive between the request and its answer
        return self.ends

    async def _read_to(self, app: Any, ends: dict[TP, int]) -> dict[TP, int]:
        assert (app, ends) == (self.app, self.ends)
        return self.read

    async def look(self, at: float, ends: dict[TP, int], read: dict[TP, int]) -> None:
        """Ask at this time, with these answers."""
        self.now, self.ends, self.read = at, ends, read
        await self.copies.request_ends()


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Worker:
    """A worker with three copies."""
    return Worker(monkeypatch)


async def test_each_copy_has_its_own_lag_and_the_time_since_it_was_complete(worker: Worker) -> None:
    """The furthest position counts; a copy that was never complete counts from its first look."""
    assert worker.copies.lags(99.0) == {}
    await worker.look(100.0, {A: 10, B: 20, C: 7}, {A: 4, B: 20})
    assert worker.asked == [[B, C, A]]
    assert worker.copies.lags(130.0) == {A: (5, 30.0), B: (0, 0.0), C: (4, 30.0)}
    await worker.look(140.0, {A: 12, B: 25}, {A: 10, B: 21})
    assert worker.copies.lags(150.0) == {A: (2, 50.0), B: (4, 50.0), C: (4, 50.0)}
    worker.offsets |= {B: 24, C: 6}
    assert worker.copies.lags(150.0) == {A: (2, 50.0), B: (0, 0.0), C: (0, 0.0)}
    await worker.look(160.0, {A: 13, B: 30, C: 9}, {})
    assert worker.copies.lags(170.0) == {A: (8, 70.0), B: (5, 30.0), C: (2, 70.0)}


async def test_a_copy_that_left_begins_anew_when_it_comes_back(worker: Worker) -> None:
    """A request notices the departure as well as a reading; other copies keep their times."""
    await worker.look(100.0, {A: 10, C: 7}, {})
    worker.standbys = {C}
    await worker.look(120.0, {C: 8}, {})
    assert worker.asked[-1] == [C]
    worker.standbys = {A, C}
    assert worker.copies.lags(125.0) == {C: (5, 25.0)}
    await worker.look(130.0, {A: 11, C: 8}, {})
    assert worker.copies.lags(140.0) == {A: (6, 10.0), C: (5, 40.0)}
    worker.standbys = {A}
    assert worker.copies.lags(150.0) == {A: (6, 20.0)}
    worker.standbys = {A, C}
    assert worker.copies.lags(150.0) == {A: (6, 20.0)}


@pytest.mark.parametrize("reason", ["no copies", "no consumer"])
async def test_without_copies_or_a_consumer_nothing_is_asked(worker: Worker, reason: str) -> None:
    """Former copies are forgotten all the same."""
    await worker.look(100.0, {A: 10, B: 20, C: 7}, {})
    if reason == "no copies":
        worker.standbys = set()
    else:
        worker.app._consumer, worker.standbys = None, {B}
    await worker.look(110.0, {B: 50}, {B: 50})
    assert len(worker.asked) == 1
    worker.standbys = {A, B, C}
    assert worker.copies.lags(120.0) == ({} if reason == "no copies" else {B: (4, 20.0)})


async def test_a_stock_recovery_has_offsets_alone(worker: Worker) -> None:
    """Without our recovery there is no progress of restores; offset 0 is a record."""
    del worker.recovery.progress
    worker.offsets |= {A: None, B: 0, C: 6}
    await worker.look(100.0, {A: 3, B: 3, C: 7}, {})
    assert worker.copies.lags(104.0) == {A: (3, 4.0), B: (2, 4.0), C: (0, 0.0)}


async def test_a_copy_that_lacks_one_record_is_as_old_as_the_look_before(worker: Worker) -> None:
    """The last offset of the changelog is the end less one."""
    worker.standbys = {B}
    worker.offsets[B] = 10
    await worker.look(100.0, {B: 11}, {})
    await worker.look(110.0, {B: 12}, {})
    assert worker.copies.lags(130.0) == {B: (1, 30.0)}
    worker.offsets[B] = 11
    assert worker.copies.lags(130.0) == {B: (0, 0.0)}

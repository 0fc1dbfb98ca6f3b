"""A full overlay holds back records for a bounded time."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from faust.types import TP

from faust_assigner.app.consumer import back_pressure as module
from faust_assigner.app.consumer.back_pressure import LONGEST_S, LOOK_S, BackPressure


class Stock:
    """Stand in for Faust's consumer; count its commits."""

    def __init__(self) -> None:
        self.app = SimpleNamespace(tables=SimpleNamespace(changelog_topics={"log"}))
        self.commits = 0
        self.in_transaction = self.should_stop = False

    async def commit(self) -> None:
        """Commit."""
        self.commits += 1


class Held:
    """A consumer whose overlay is full for ``full_s`` seconds of a clock moved by its pauses."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, full_s: float) -> None:
        self.now = 100.0
        self.usage = SimpleNamespace(is_full=full_s > 0)
        monkeypatch.setattr(module, "usage_of", lambda app: self.usage)
        monkeypatch.setattr(module, "monotonic", lambda: self.now)

        async def sleep(seconds: float) -> None:
            self.now += seconds
            self.usage.is_full = self.now - 100.0 < full_s - 1e-9

        monkeypatch.setattr(module.asyncio, "sleep", sleep)
        self.consumer = Stock()
        self.it = BackPressure(self.consumer)  # type: ignore[arg-type]

    async def deliver(self, tp: str = "orders") -> float:
        """Deliver a record; return the seconds for which the consumer holds it back."""
        began = self.now
        if self.it.holds_back(SimpleNamespace(tp=TP(tp, 0))):  # type: ignore[arg-type]
            await self.it.wait_for_room()
        return round(self.now - began, 6)


@pytest.mark.parametrize(
    ("full_s", "held_s"), [(0.0, 0.0), (LOOK_S, LOOK_S), (0.1, 0.1), (60.0, LONGEST_S)]
)
async def test_a_record_is_held_back_until_there_is_room_or_for_a_second(
    monkeypatch: pytest.MonkeyPatch, full_s: float, held_s: float
) -> None:
    """The consumer delivers after LONGEST_S: the agent may wait for a record that never comes."""
    held = Held(monkeypatch, full_s)
    assert await held.deliver() == pytest.approx(held_s, abs=LOOK_S)
    assert held.consumer.commits == 0


@pytest.mark.parametrize(("full_s", "held_s"), [(0.75, 0.75), (1.0, 1.0), (1.25, 1.0)])
async def test_a_record_is_held_back_for_the_longest_time_and_no_longer(
    monkeypatch: pytest.MonkeyPatch, full_s: float, held_s: float
) -> None:
    """The check at the end of LONGEST_S delivers the record."""
    monkeypatch.setattr(module, "LOOK_S", 0.25)
    assert await Held(monkeypatch, full_s).deliver() == held_s


async def test_records_of_changelogs_are_never_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changelog records free room in the overlay."""
    assert await Held(monkeypatch, 60.0).deliver("log") == 0.0


async def test_a_transaction_is_committed_to_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """The consumer commits once, before the first delivery, and not again while there is room."""
    held = Held(monkeypatch, 0.1)
    held.consumer.in_transaction = True
    await held.deliver()
    await held.deliver()
    assert held.consumer.commits == 1


async def test_a_consumer_that_stops_holds_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopping worker waits for its streams, so its consumer delivers at once."""
    held = Held(monkeypatch, 60.0)
    held.consumer.should_stop = True
    assert await held.deliver() == 0.0

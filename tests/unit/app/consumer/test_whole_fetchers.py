"""A new fetcher and a new guard of record boundaries, as their hosts create them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.consumer.fetcher import Fetcher
from faust.types import TP

from faust_assigner.app.consumer.fetcher import FairFetcher
from faust_assigner.app.consumer.whole_records import RecordBoundaryCommits, RecordsEnd
from tests.unit.app.consumer.test_fetcher import A, B, C, Turns


@pytest.mark.parametrize(
    ("options", "reads_committed"),
    [
        ({}, False),
        ({"isolation_level": "read_uncommitted"}, False),
        ({"isolation_level": "read_committed", "fetch_min_bytes": 3}, True),
    ],
)
def test_a_fetcher_is_whole_before_aiokafka_starts_its_task(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], reads_committed: bool
) -> None:
    """The task runs from aiokafka's constructor on; two fetchers share nothing."""
    begun: list[Any] = []

    def init(self: Any, *args: Any, **given: Any) -> None:
        begun.append((args, given, dict(vars(self))))

    monkeypatch.setattr(Fetcher, "__init__", init)
    first: Any = FairFetcher("client", "subscriptions", **options)  # type: ignore[arg-type]
    second: Any = FairFetcher("client", "subscriptions", **options)  # type: ignore[arg-type]
    assert [(args, given) for args, given, _ in begun] == [
        (("client", "subscriptions"), options)
    ] * 2
    assert begun[0][2] == vars(first)
    assert first._subscription_state == "subscriptions"
    assert first._reads_committed is reads_committed
    assert (first._looked_up, first._at_end, first.counters) == ({}, set(), {})
    assert (len(first.aside), len(first.refused)) == (0, 0)
    assert first.aside is not first.refused
    assert (first.is_wanted(TP("orders", 0)), first.is_hurried()) == (True, False)
    for name in ("_looked_up", "_at_end", "counters", "aside", "refused"):
        assert getattr(first, name) is not getattr(second, name)


@pytest.mark.parametrize("in_transaction", [True, False])
def test_the_ends_of_records_matter_to_transactions_alone(in_transaction: bool) -> None:
    """Each event of a stream would cost a call otherwise."""
    sensors: list[Any] = []
    consumer: Any = SimpleNamespace(
        in_transaction=in_transaction,
        transactions="transactions",
        app=SimpleNamespace(sensors=SimpleNamespace(add=sensors.append)),
    )
    boundaries = RecordBoundaryCommits(consumer)
    assert [(type(sensor), sensor.done) for sensor in sensors] == [
        (RecordsEnd, boundaries.record_ended)
    ] * in_transaction
    assert (boundaries._open, boundaries._cut, boundaries._late_since) == (None, {}, {})
    assert (boundaries._soon, boundaries._whole_commit) == (None, None)


async def test_each_look_up_without_a_position_refreshes_the_metadata() -> None:
    """Others may still be under way, and may take minutes."""
    turns, refreshed, gates = Turns(A, B, C), list[Any](), {A: asyncio.Event(), B: asyncio.Event()}
    turns.states[A].has_valid_position = turns.states[B].has_valid_position = False

    async def look_up(assignment: Any, node: int, tps: list[Any]) -> None:
        await gates[tps[0]].wait()

    turns.fetcher._update_fetch_positions = look_up
    turns.fetcher._client.force_metadata_update = lambda: refreshed.append("asked")
    turns.fetcher._look_up(turns.assignment, [A, B, C])
    for number, tp in enumerate((A, B), 1):
        gates[tp].set()
        await turns.fetcher._looked_up[turns.states[tp]]
        await asyncio.sleep(0)
        assert refreshed == ["asked"] * number
        assert len(turns.fetcher._looked_up) == 2 - number
    turns.states[A].has_valid_position = True
    turns.fetcher._look_up(turns.assignment, [A, B, C])
    assert list(turns.fetcher._looked_up) == [turns.states[B]]
    await asyncio.gather(*turns.fetcher._looked_up.values())
    await asyncio.sleep(0)
    assert refreshed == ["asked"] * 3


async def test_a_fetcher_is_woken_once_while_it_waits() -> None:
    """A second call, or one while the fetcher does not wait, has no effect."""
    fetcher = Turns(A).fetcher
    fetcher.wake()
    fetcher._wait_consume_future = waiting = asyncio.get_running_loop().create_future()
    fetcher.wake()
    fetcher.wake()
    assert waiting.result() is None
    fetcher._wait_consume_future = gone = asyncio.get_running_loop().create_future()
    gone.cancel()
    fetcher.wake()
    assert gone.cancelled()

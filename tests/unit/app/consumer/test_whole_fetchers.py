"""A new fetcher and a new guard of record boundaries, as their hosts create them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.consumer.fetcher import Fetcher
from faust.types import TP

from faust_assigner.app.consumer.fetcher import FairFetcher
from faust_assigner.app.consumer.whole_records import RecordBoundaryCommits, RecordsEnd


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

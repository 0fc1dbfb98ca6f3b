"""The broker's metrics, whole: one snapshot of several groups, and its text for Prometheus."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import generate_latest
from prometheus_client.registry import CollectorRegistry

from faust_assigner.broker import metrics
from faust_assigner.broker.groups import meter as meter_module
from faust_assigner.broker.groups.meter import Meter, Spread
from faust_assigner.broker.metrics import BrokerCollector, Snapshot, take


def group(kind: str, state: str, *protocols: str) -> Any:
    """Return a group of members with these protocols."""
    return SimpleNamespace(group_type=kind, state_name=state, member_counts=Counter(protocols))


def test_a_snapshot_counts_each_member_by_its_own_protocol() -> None:
    """A group that changes its protocol has members of both; every value has its own field."""
    meter = Meter(Counter(join=3), Spread((1.0,)), Counter(FENCED=4))
    meter.rebalance_s.add(0.5)
    meter.heartbeat_s["classic"].add(0.00005)
    for seconds in (5.0, 0.0003):
        meter.heartbeat_s["consumer"].add(seconds)

    class Groups(list[Any]):
        """All groups, with their meter."""

    groups = Groups(
        [
            group("consumer", "Stable", "consumer", "classic", "consumer"),
            group("consumer", "Stable"),
            group("classic", "Empty"),
            group("classic", "Stable", "classic"),
        ]
    )
    groups.meter = meter  # type: ignore[attr-defined]
    node = SimpleNamespace(groups=groups, counters=Counter(reads=2), catalogue=(1, 2, 3))
    seen = take(cast(Any, SimpleNamespace(node=node, connections=7)))
    assert (seen.events, seen.rebalances, seen.fenced) == ({"reads": 2}, {"join": 3}, {"FENCED": 4})
    assert seen.groups == {
        ("consumer", "Stable"): 2, ("classic", "Empty"): 1, ("classic", "Stable"): 1
    }  # fmt: skip
    assert (seen.members, seen.connections, seen.topics) == ({"classic": 2, "consumer": 2}, 7, 3)
    assert seen.spreads["rebalance"] == ([("1.0", 1.0), ("+Inf", 1.0)], 0.5)
    assert seen.spreads["classic"][0][0] == ("0.0001", 1.0)
    buckets, total = seen.spreads["consumer"]
    assert [count for _, count in buckets] == [0.0, *[1.0] * 9, 2.0]
    assert total == pytest.approx(5.0003)


async def test_the_text_of_a_scrape_has_every_value_in_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Labels are in order, histograms have sums, and no group, member or topic is named."""
    seen = Snapshot(
        {"reads_failed": 2, "batches_refused": 1},
        {"join": 3},
        {"FENCED_MEMBER_EPOCH": 4},
        {("consumer", "Stable"): 6, ("classic", "Empty"): 5},
        {"consumer": 9, "classic": 8},
        7,
        11,
        {
            "rebalance": ([("0.5", 1.0), ("+Inf", 2.0)], 3.5),
            "classic": ([("0.1", 3.0), ("+Inf", 4.0)], 0.25),
            "consumer": ([("0.1", 5.0), ("+Inf", 6.0)], 0.75),
        },
    )
    monkeypatch.setattr(metrics, "take", lambda server: seen)
    registry = CollectorRegistry()
    registry.register(BrokerCollector(cast(Any, None), asyncio.get_running_loop()))
    text = (await asyncio.to_thread(generate_latest, registry)).decode()
    prefix = "faust_assigner_broker_"
    lines = [one.removeprefix(prefix) for one in text.splitlines() if not one.startswith("#")]
    assert lines == [
        'group_rebalances_total{reason="join"} 3.0',
        'group_fenced_requests_total{error="FENCED_MEMBER_EPOCH"} 4.0',
        'events_total{event="batches_refused"} 1.0',
        'events_total{event="reads_failed"} 2.0',
        'groups{state="Empty",type="classic"} 5.0',
        'groups{state="Stable",type="consumer"} 6.0',
        'group_members{protocol="classic"} 8.0',
        'group_members{protocol="consumer"} 9.0',
        "connections 7.0",
        "topics 11.0",
        'group_rebalance_seconds_bucket{le="0.5"} 1.0',
        'group_rebalance_seconds_bucket{le="+Inf"} 2.0',
        "group_rebalance_seconds_count 2.0",
        "group_rebalance_seconds_sum 3.5",
        'group_heartbeat_seconds_bucket{le="0.1",protocol="classic"} 3.0',
        'group_heartbeat_seconds_bucket{le="+Inf",protocol="classic"} 4.0',
        'group_heartbeat_seconds_count{protocol="classic"} 4.0',
        'group_heartbeat_seconds_sum{protocol="classic"} 0.25',
        'group_heartbeat_seconds_bucket{le="0.1",protocol="consumer"} 5.0',
        'group_heartbeat_seconds_bucket{le="+Inf",protocol="consumer"} 6.0',
        'group_heartbeat_seconds_count{protocol="consumer"} 6.0',
        'group_heartbeat_seconds_sum{protocol="consumer"} 0.75',
    ]


def test_the_time_of_a_heartbeat_counts_for_its_own_protocol(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Other requests are not measured."""
    monkeypatch.setattr(meter_module, "time", SimpleNamespace(monotonic=lambda: 100.0))
    meter = Meter()
    for api_key, heard_at in ((b"\0\x0c", 99.5), (b"\0\x44", 98.0), (b"\0\x0b", 1.0), (b"\0", 1.0)):
        meter.served(api_key, heard_at)
    assert {name: (sum(s.counts), s.total) for name, s in meter.heartbeat_s.items()} == {
        "classic": (1, 0.5), "consumer": (1, 2.0)
    }  # fmt: skip


def test_two_groups_rebalance_each_in_their_own_time() -> None:
    """Each rebalance has its first reason and ends with Stable; Empty and Dead give no time."""
    meter = Meter()
    for group_id, state, now, reason in (
        ("g", "PreparingRebalance", 1_000, "join"),
        ("h", "Assigning", 2_000, "leave"),
        ("g", "CompletingRebalance", 3_000, "sync"),
        ("g", "Stable", 4_500, "sync"),
        ("g", "Stable", 5_000, "beat"),
        ("h", "Empty", 6_000, "leave"),
        ("h", "Stable", 9_000, "join"),
        ("i", "Reconciling", 9_000, "join"),
        ("i", "Dead", 9_500, "delete"),
        ("i", "Reconciling", 9_600, "join"),
    ):
        meter.state_seen(group_id, state, now, reason)
    assert meter.rebalances == {"join": 3, "leave": 1}
    assert (sum(meter.rebalance_s.counts), meter.rebalance_s.total) == (1, 3.5)
    meter.forget("i")
    meter.forget("i")
    meter.state_seen("i", "Stable", 20_000, "sync")
    assert sum(meter.rebalance_s.counts) == 1

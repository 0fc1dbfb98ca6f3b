"""When a member leaves because it took no records, and when its idle time begins anew."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.app.repairs import idle
from faust_assigner.app.repairs.idle import comes_back


class Coordinator:
    """aiokafka's, of a member with these partitions."""

    group_id, _max_poll_interval = "g", 300.0

    def __init__(self, acts: list[str], *partitions: int) -> None:
        self.acts = acts
        self._closing = asyncio.get_running_loop().create_future()
        self._subscription = SimpleNamespace(
            assigned_partitions=lambda: set(partitions),
            fetcher_idle_time=301.0,
            _fetch_count=0,
            _last_fetch_ended=1.0,
        )

    async def _maybe_leave_group(self) -> None:
        self.acts.append("leave")

    async def _stop_heartbeat_task(self) -> None:
        self.acts.append("stop heartbeats")

    @property
    def idle_since(self) -> float:
        """When the last fetch ended."""
        return float(self._subscription._last_fetch_ended)


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """It is 500 s."""
    monkeypatch.setattr(idle, "monotonic", lambda: 500.0)
    return


async def started(*partitions: int) -> Any:
    """The coordinator of a consumer that has started."""

    async def start() -> None:
        """Start."""

    consumer = SimpleNamespace(start=start, _coordinator=Coordinator([], *partitions))
    comes_back(consumer)
    await consumer.start()
    return consumer._coordinator


async def test_a_member_with_partitions_leaves_and_says_why(caplog: Any) -> None:
    """And what to do."""
    coordinator = await started(0)
    await coordinator._maybe_leave_group()
    assert coordinator.acts == ["leave"]
    assert "broker_max_poll_interval is 300.0 s" in caplog.text


async def test_a_member_without_partitions_stays_and_counts_anew() -> None:
    """aiokafka would ask at each heartbeat; a fetch under way ends the idle time itself."""
    coordinator = await started()
    await coordinator._maybe_leave_group()
    assert (coordinator.acts, coordinator.idle_since) == ([], 500.0)
    coordinator = await started()
    coordinator._subscription._fetch_count = 1
    await coordinator._maybe_leave_group()
    assert coordinator.idle_since == 1.0


@pytest.mark.parametrize("partitions", [(), (0,)])
async def test_a_consumer_that_stops_leaves_without_a_word(
    caplog: Any, partitions: tuple[int, ...]
) -> None:
    """Whatever it has."""
    coordinator = await started(*partitions)
    coordinator._closing.set_result(None)
    await coordinator._maybe_leave_group()
    assert (coordinator.acts, caplog.text) == (["leave"], "")


@pytest.mark.parametrize(
    ("partitions", "membership", "is_anew"),
    [
        ((0,), None, True),
        ((0,), SimpleNamespace(gave_up=True), True),
        ((0,), SimpleNamespace(gave_up=False), False),
        ((), SimpleNamespace(gave_up=False), True),
    ],
    ids=["eager", "gave up", "keeps", "nothing"],
)
async def test_the_time_of_a_join_is_idle_only_where_something_is_kept(
    partitions: tuple[int, ...], membership: Any, is_anew: bool
) -> None:
    """What was given up cannot be fetched; heartbeats stop as ever."""
    coordinator = await started(*partitions)
    if membership is not None:
        coordinator.membership = membership
    await coordinator._stop_heartbeat_task()
    assert coordinator.acts == ["stop heartbeats"]
    assert coordinator.idle_since == (500.0 if is_anew else 1.0)

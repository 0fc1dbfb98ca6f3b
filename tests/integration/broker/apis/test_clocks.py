"""The machine's wall clock jumps, as after a sleep or by NTP; the monotonic clock does not."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from faust_assigner.broker import EmbeddedBroker
from faust_assigner.broker.housekeeping import expire, retain
from faust_assigner.coordinator.events import JoinGroup, Protocol, SyncGroup
from tests.integration.broker.apis.calls import commit
from tests.support.clients.raw_client import RawClient, batch

HOUR_S = 3_600
BY_BROKER = {"message.timestamp.type": "LogAppendTime"}


class WallClock:
    """The ``time.time`` of this process, shifted by ``ahead_s`` seconds."""

    def __init__(self) -> None:
        self._real = time.time
        self.ahead_s = 0.0

    def __call__(self) -> float:
        """Seconds since 1970."""
        return self._real() + self.ahead_s

    @property
    def ms(self) -> int:
        """Milliseconds since 1970."""
        return int(self() * 1000)


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> WallClock:
    """A wall clock under the test's control, installed before the broker starts."""
    clock = WallClock()
    monkeypatch.setattr(time, "time", clock)
    return clock


@pytest.fixture
def running(wall: WallClock) -> Iterator[EmbeddedBroker]:
    """A broker with a topic ``t`` that uses the process's clocks."""
    with EmbeddedBroker(settings={"offsets.retention.minutes": 60}) as broker:
        broker.call(lambda node: node.catalogue.create("t", 2, {}))
        yield broker


@pytest.mark.parametrize("hours", [8, -8])
def test_records_of_now_are_taken_after_the_wall_clock_stepped(
    running: EmbeddedBroker, wall: WallClock, hours: int
) -> None:
    """Timestamps are compared with the current wall clock, not with that of the broker's start."""
    with RawClient(running.bootstrap) as client:
        assert client.produce("t", 0, batch(timestamp=wall.ms)).error_code == 0
        wall.ahead_s = hours * HOUR_S
        assert client.produce("t", 0, batch(timestamp=wall.ms)).error_code == 0
        too_new = wall.ms + 2 * HOUR_S * 1000
        assert client.produce("t", 0, batch(timestamp=too_new)).error_code == 32


def test_the_brokers_own_time_in_records_follows_the_wall_clock(
    running: EmbeddedBroker, wall: WallClock
) -> None:
    """The topic has message.timestamp.type=LogAppendTime."""
    running.call(lambda node: node.catalogue.create("stamped", 1, BY_BROKER))
    with RawClient(running.bootstrap) as client:
        wall.ahead_s = 8 * HOUR_S
        answer = client.produce("stamped", 0, batch())
    assert abs(answer.log_append_time.timestamp() - wall()) < 60


def test_records_and_offsets_age_by_the_wall_clock(
    running: EmbeddedBroker, wall: WallClock
) -> None:
    """retention.ms and offsets.retention.minutes count the hours of a sleep."""
    running.call(
        lambda node: node.catalogue.create("brief", 1, {"retention.ms": str(HOUR_S * 1000)})
    )
    with RawClient(running.bootstrap) as client:
        client.produce("brief", 0, batch(timestamp=wall.ms))
        commit(client, 5)
        assert running.call(lambda node: (sum(retain(node)), sum(expire(node)))) == (0, 0)
        wall.ahead_s = 2 * HOUR_S
        assert running.call(lambda node: (sum(retain(node)), sum(expire(node)))) == (1, 1)


@pytest.mark.parametrize("hours", [8, -8])
def test_sessions_do_not_see_a_step_of_the_wall_clock(
    running: EmbeddedBroker, wall: WallClock, hours: int
) -> None:
    """A session of 300 ms survives the step, and a silent member still expires after 300 ms."""
    protocols = (Protocol("range", b"m"),)

    def join(node: object) -> None:
        groups = running.node.groups
        groups.ask("g", lambda t: JoinGroup(t, "", "m", protocols, session_timeout_ms=300,
                                            needs_known_id=False), lambda reply: None)  # fmt: skip
        groups.tick("g")
        groups.ask("g", lambda t: SyncGroup(t, "m", 1, assignments={"m": b""}), lambda reply: None)

    def state(node: object) -> str:
        group = running.node.groups.get("g")
        assert group is not None
        return group.state_name

    def step_and_look(node: object) -> str:
        join(node)
        wall.ahead_s = hours * HOUR_S
        running.node.groups.tick("g")
        return state(node)

    assert running.call(step_and_look) == "Stable"
    deadline = time.monotonic() + 60
    while running.call(state) == "Stable" and time.monotonic() < deadline:
        time.sleep(0.02)
    assert running.call(state) == "Empty"

"""A slow target is computed beside the event loop, which answers heartbeats meanwhile."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from faust_assigner.broker import EmbeddedBroker
from faust_assigner.broker.groups import computing
from tests.support.clients.raw_client import RawClient
from tests.support.coordination.raw_consumer_group import ConsumerScript


def test_heartbeats_go_on_while_a_large_target_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """2,100 partitions: only the member waits for its share."""
    began, may_go_on, threads = threading.Event(), threading.Event(), []
    real = computing.compute

    def slow(spec: Any) -> Any:
        threads.append(threading.current_thread().name)
        began.set()
        assert may_go_on.wait(30)
        return real(spec)

    monkeypatch.setattr(computing, "compute", slow)
    with EmbeddedBroker() as broker, ConsumerScript(broker.bootstrap) as s:
        s.topic("a", 2_100)
        s.go_on("one")
        assert s.shown_owned("one") == []
        for _ in range(3):
            s.go_on("one")  # answered, and still without a share
        with RawClient(broker.bootstrap) as other:
            assert other.call(18, 0).error_code == 0
        assert s.shown_owned("one") == []
        assert began.wait(30)
        assert [name.split("_")[0] for name in threads] == ["broker-assign"]
        may_go_on.set()
        s.settle("one")
        assert len(s.owned["one"][0]["partitions"]) == 2_100

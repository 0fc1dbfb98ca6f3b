"""Ends with the test's process, ports, rests and advances of time, each with all of its effects."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.testing import broker as broker_module
from faust_assigner.testing import kafka, log, ports, turns, worker
from faust_assigner.testing import rest as rest_module
from faust_assigner.testing.faults import Faults
from faust_assigner.testing.reporting import Part
from faust_assigner.testing.rest import owners_at_rest, wait_for_rest
from tests.unit.testing.made import Noted, made
from tests.unit.testing.test_kit_parts import Wire, request


def test_a_worker_process_ends_once_its_input_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Input is read and ignored; the exit code tells that the worker did not end by itself."""
    reads, events = [b"some", b"words", b""], list[Any]()

    def read(*given: int) -> bytes:
        events.append(given)
        return reads.pop(0)

    monkeypatch.setattr(
        worker, "os", SimpleNamespace(read=read, _exit=lambda code: events.append(code))
    )
    worker._end_with_parent()
    assert events == [*3 * [(0, 4096)], 1]


def test_a_worker_process_watches_its_input_and_writes_each_row_on_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watching thread does not keep the process alive."""
    threads: list[Any] = []
    app = SimpleNamespace(finalize=lambda: None, main=lambda: None)

    def report(reported: Any, tell: Any) -> None:
        assert reported is app
        for number in (1, 2):
            tell({"kind": "ready", "generation": number})

    monkeypatch.setenv("KIT_JOURNAL", str(tmp_path / "journal"))
    monkeypatch.setenv("KIT_SETTINGS", "{}")
    monkeypatch.setenv("KIT_APP", "shop:app")
    monkeypatch.setattr(worker.sys, "argv", ["pytest"])
    monkeypatch.setattr(worker.apps, "load", lambda name: app)
    monkeypatch.setattr(worker, "report", report)

    def thread(**options: Any) -> Any:
        return SimpleNamespace(start=lambda: threads.append(options))

    monkeypatch.setattr(worker.threading, "Thread", thread)
    worker.main()
    assert threads == [{"target": worker._end_with_parent, "name": "parent", "daemon": True}]
    rows = [json.dumps({"kind": "ready", "generation": number}) for number in (1, 2)]
    assert (tmp_path / "journal").read_text() == "".join(f"{row}\n" for row in rows)


def test_a_block_passes_its_settings_on_to_its_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder, all settings and the port."""
    given: list[Any] = []

    def process(*arguments: Any, **more: Any) -> Any:
        given.append((*arguments, more))
        return SimpleNamespace(process=SimpleNamespace(poll=lambda: 3))

    monkeypatch.setattr(broker_module, "BrokerProcess", process)
    with broker_module.broker_process(Path("/data"), "a=b", "c=d", port=17):
        pass
    assert given == [(Path("/data"), "a=b", "c=d", {"port": 17})]


def test_a_port_is_tried_on_loopback_as_its_server_will(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every socket is closed; a port that may not be used counts as taken."""
    events: list[Any] = []

    class Probe:
        def __enter__(self) -> Probe:
            return self

        def __exit__(self, *_: object) -> None:
            events.append("closed")

        def setsockopt(self, *given: Any) -> None:
            events.append(given)

        def bind(self, address: Any) -> None:
            events.append(address)
            if sum(isinstance(one, tuple) and one[0] == "127.0.0.1" for one in events) < 3:
                raise (OSError, PermissionError)[len(events) > 3]("taken")

    fake = SimpleNamespace(socket=Probe, SOL_SOCKET=11, SO_REUSEADDR=22)
    monkeypatch.setattr(ports, "socket", fake)
    port = ports.free_port()
    tried = [one[1] for one in events if isinstance(one, tuple) and one[0] == "127.0.0.1"]
    assert (len(set(tried)), tried[-1]) == (3, port)
    assert events == [
        event for one in tried for event in ((11, 22, 1), ("127.0.0.1", one), "closed")
    ]


def test_time_passes_at_once_without_a_worker_and_begins_and_ends_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No real time is slept."""
    fleet, _ = made(tmp_path)
    events: list[Any] = []

    def idle(*given: Any) -> None:
        events.append((given == (fleet.workers, fleet.broker, fleet.clock), fleet.clock._held_at))

    monkeypatch.setattr(turns, "run_until_idle", idle)
    monkeypatch.setattr(turns.time, "sleep", lambda seconds: events.append(seconds))
    turns.advance(fleet.workers, fleet.broker, fleet.clock, 4_000.0)
    assert events == [(True, 1_000.0), (True, 5_000.0)]


def test_a_worker_that_is_ready_for_another_generation_is_not_at_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The answer names the generation that the workers share."""
    workers: list[Any] = [Noted("w1", []), Noted("w2", [])]
    monkeypatch.setattr(rest_module.log, "ends", lambda broker, topic: [9, 9])
    for number, one in enumerate(workers):
        one.state.actives = frozenset({Part("t", number, 7)})
    broker: Any = None
    assert owners_at_rest(workers, broker) == (4, {(7, 0): "w1", (7, 1): "w2"})
    for ready in (3, 5):
        workers[1].state.ready = ready
        assert owners_at_rest(workers, broker) is None
    workers[1].state.ready = 4
    workers[1].state.generation = 5
    assert owners_at_rest(workers, broker) is None
    assert owners_at_rest([], broker) is None


def test_a_group_without_rest_is_told_by_each_workers_own_reason(tmp_path: Path) -> None:
    """Each look lets time creep first."""
    fleet, _ = made(tmp_path, "w2", "w1")
    for name, one in fleet.workers.items():
        one.why_not = lambda name=name: f"{name} is tired"  # type: ignore[method-assign,misc]
        one.state.ready = 3
        one.is_ice = name == "w1"  # a frozen worker is named, too
    looks: list[None] = []
    with pytest.raises(AssertionError) as failure:
        wait_for_rest(fleet.workers, fleet.broker, 0.0, -1.0, lambda: looks.append(None))
    assert str(failure.value) == (
        "waited -1 s for: the group to be at rest\nw2: w2 is tired\nw1: w1 is tired"
    )
    assert len(looks) == 1


def test_a_loss_is_of_the_client_with_just_this_name() -> None:
    """A longer name that begins with it is another client's."""
    faults = Faults()
    faults.lose("ab", 3)
    assert [faults.loses(name, 3) for name in ("abc", "a", "", "AB", "ab", "ab")] == [
        *(False, False, False, False, True, False)
    ]


def test_held_requests_are_served_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second stall of the client holds later requests alone, and a connection waits only once."""
    wire = Wire(monkeypatch)
    connection = wire.connect()
    first = request("a")
    connection.data_received(first)
    for parts in ((b"1", b"2"), (b"3", b"4", b"5")):
        wire.faults.stall("a")
        for part in parts:
            connection.data_received(part)
        assert wire.faults.stalled == {"a": [connection]}
        wire.faults.resume("a")
    wire.faults.resume("a")
    assert wire.served == [first, b"12", b"345"]
    connection.is_closing = True
    wire.faults.stall("a")
    connection.data_received(b"6")
    wire.faults.resume("a")
    assert (wire.served[-1], wire.aborted) == (b"345", 0)


def test_records_and_jars_are_read_from_their_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All records of a topic of the fleet's broker; the jars of Kafka's version."""
    fleet, _ = made(tmp_path)
    found = [log.Record("k", number, 1.0, 0, number) for number in range(3)]
    asked: list[Any] = []
    monkeypatch.setattr(log, "read", lambda *given: asked.append(given) or found)
    assert fleet.records("orders") == found
    assert asked == [(fleet.broker, "orders")]
    monkeypatch.setattr(kafka, "fetch_jars", lambda *given: given)
    assert kafka.kafka_jars() == (kafka.POM, f"kafka-{kafka.KAFKA_VERSION}")  # type: ignore[comparison-overlap]
    assert kafka.POM.is_file()

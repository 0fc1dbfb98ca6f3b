"""The consumer's thread with our parts: its start, fetches, seeks and stop."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any

import pytest
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread
from mode.threads import QueueServiceThread

from faust_assigner.app.rebalance import consumer_thread
from faust_assigner.app.rebalance.consumer import RepairedConsumer
from faust_assigner.app.rebalance.consumer_thread import (
    CALLS,
    AssigningConsumer,
    AssigningThread,
    RepairedThread,
)
from tests.support.waiting import PATIENCE_S


async def test_a_fetch_keeps_its_time_and_its_number_of_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Faust's fetch gets both limits, the client and the partitions."""
    asked: list[Any] = []

    async def put_back(thread: Any, fetch: Any, consumer: Any, active: Any, **limits: Any) -> Any:
        asked.append((thread, fetch.__name__, consumer, active, limits))
        return {"a batch": []}

    monkeypatch.setattr(consumer_thread, "fetch_or_put_back", put_back)
    thread = object.__new__(RepairedThread)
    client: Any = object()
    found = await thread._fetch_records(client, {"tp"}, timeout=0.3, max_records=7)
    assert found == {"a batch": []}
    limits = {"timeout": 0.3, "max_records": 7}
    assert asked == [(thread, "_fetch_records", client, {"tp"}, limits)]


class Noted:
    """A thread of class ``kind`` without Faust's start; ``acts`` lists the calls in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: type[Any]) -> None:
        self.acts: list[Any] = []
        self.thread: Any = object.__new__(kind)
        self.client = SimpleNamespace(_coordinator=SimpleNamespace())
        self.app = SimpleNamespace(conf=SimpleNamespace(broker_max_poll_interval=1000))
        self.thread._consumer, self.thread.app = self.client, self.app

        async def on_start(thread: Any) -> None:
            self.acts.append("Faust's start")

        async def replace_parts(thread: Any, client: Any) -> None:
            self.acts.append(("replace", client))

        monkeypatch.setattr(AIOKafkaConsumerThread, "on_start", on_start)
        monkeypatch.setattr(kind, "_replace_parts", replace_parts)
        for name in ("guard_leader", "guard_instance", "rejoin_after_idle"):
            monkeypatch.setattr(consumer_thread, name, self._noting(name))

    def _noting(self, name: str) -> Any:
        return lambda *args: self.acts.append((name, *args))


@pytest.mark.parametrize("kind", [AssigningThread, RepairedThread])
async def test_a_client_is_guarded_once_its_parts_are_ours(
    monkeypatch: pytest.MonkeyPatch, kind: type[Any]
) -> None:
    """A coordinator replaced after its guard would be unguarded."""
    noted = Noted(monkeypatch, kind)
    await noted.thread.on_start()
    assert noted.acts == [
        "Faust's start",
        ("replace", noted.client),
        ("guard_leader", noted.client),
        ("guard_instance", noted.client, noted.app),
        ("rejoin_after_idle", noted.client, 1000.0),
    ]


def test_a_client_joins_with_the_apps_assignor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without tables Faust chooses a different assignor."""
    ours = object()
    client = SimpleNamespace(_partition_assignment_strategy="Faust's choice")
    monkeypatch.setattr(
        AIOKafkaConsumerThread, "_create_worker_consumer", lambda thread, transport: client
    )
    thread: Any = object.__new__(AssigningThread)
    thread.app = SimpleNamespace(assignor=ours)
    assert thread._create_worker_consumer("transport") is client
    assert client._partition_assignment_strategy == [ours]


async def test_the_client_of_fausts_own_consumer_keeps_its_parts() -> None:
    """Only the repairs replace the parts."""
    client = SimpleNamespace(_coordinator="aiokafka's", _fetcher="aiokafka's")
    await object.__new__(AssigningThread)._replace_parts(client)
    assert vars(client) == {"_coordinator": "aiokafka's", "_fetcher": "aiokafka's"}


async def test_the_steps_of_a_repaired_thread_are_its_consumers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread delegates its bounded stop, its seek and the check of a wanted partition."""
    asked: list[Any] = []

    async def stop_client(stop: Any) -> None:
        asked.append((stop.__name__, stop.__self__))

    async def seek(thread: Any, one_by_one: Any) -> Any:
        asked.append((thread, one_by_one.__name__, one_by_one.__self__))
        return {"tp": 5}

    def verify(check: Any, now: float, tp: Any, *, counted_from: Any) -> None:
        asked.append((check.__name__, now, tp))
        records, commits = counted_from
        assert records is thread.consumer.app.monitor.stream_inbound_time
        assert commits is thread.tp_last_committed_at

    monkeypatch.setattr(consumer_thread, "seek_to_committed", seek)
    thread: Any = object.__new__(RepairedThread)
    thread.consumer = SimpleNamespace(
        app=SimpleNamespace(monitor=SimpleNamespace(stream_inbound_time={})),
        shutdown=SimpleNamespace(stop_client=stop_client),
        delivery=SimpleNamespace(verify=verify, note_commit=lambda *given: asked.append(given)),
        in_transaction=False,
    )
    thread.tp_last_committed_at = {}
    await thread.on_thread_stop()
    assert await thread.seek_to_committed() == {"tp": 5}
    thread.verify_event_path(7.5, "tp")
    thread.consumer.in_transaction = True
    thread.verify_event_path(8.5, "tp")
    assert asked == [
        ("on_thread_stop", thread),
        (thread, "seek_to_committed", thread),
        ("verify_event_path", 7.5, "tp"),
        (8.5, "tp", thread.tp_last_committed_at),
        ("verify_event_path", 8.5, "tp"),
    ]


class OwnThread(AIOKafkaConsumerThread):  # type: ignore[misc]
    """An app's own thread of the consumer; it notes its arguments and is never started."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.given = args, options


class AssigningConsumerOfAnApp(AssigningConsumer):
    """A consumer whose base class names the thread's class."""


@pytest.mark.parametrize(
    ("consumer_class", "own", "ours"),
    [
        (AssigningConsumer, AssigningConsumer, AssigningThread),
        (AssigningConsumerOfAnApp, AssigningConsumer, AssigningThread),
        (RepairedConsumer, RepairedConsumer, RepairedThread),
    ],
)
def test_a_consumer_makes_its_thread_from_our_class_and_the_app_s(
    monkeypatch: pytest.MonkeyPatch, consumer_class: Any, own: Any, ours: type[Any]
) -> None:
    """The thread gets the consumer with its loop and beacon; without an own class it is Faust's."""
    consumer = object.__new__(consumer_class)
    consumer.loop, consumer.beacon = "loop", "beacon"
    expected = ((consumer,), {"loop": "loop", "beacon": "beacon"})
    monkeypatch.setattr(own, "thread_class", OwnThread, raising=False)
    made = consumer._new_consumer_thread()
    assert type(made).__bases__ == (ours, OwnThread)
    assert made.given == expected
    monkeypatch.delattr(own, "thread_class")
    monkeypatch.setattr(AIOKafkaConsumerThread, "__init__", OwnThread.__init__)
    made = consumer._new_consumer_thread()
    assert type(made).__bases__ == (ours,)
    assert made.given == expected


class Served(RepairedThread):
    """A repaired thread without a client, which only serves calls."""

    def __post_init__(self) -> None:
        """Read no setting of an app."""

    async def on_start(self) -> None:
        """Create no client."""

    async def on_thread_stop(self) -> None:
        """End the calls, as Faust does before it stops the client."""
        await QueueServiceThread.on_thread_stop(self)


async def test_calls_without_an_answer_hold_up_no_other_call() -> None:
    """A worker asks for the ends of an unavailable changelog in several places, up to the request timeout."""
    app = SimpleNamespace()
    consumer = SimpleNamespace(app=app, transport=SimpleNamespace(app=app))
    thread = Served(consumer, loop=asyncio.get_running_loop())
    asked, silent = asyncio.Event(), asyncio.Event()

    async def ask(number: int) -> int:
        if number == CALLS - 2:
            thread.parent_loop.call_soon_threadsafe(asked.set)
        await silent.wait()
        return number

    async def answer() -> None:
        silent.set()

    await thread.start()
    try:
        asking = [asyncio.ensure_future(thread.call_thread(ask, n)) for n in range(CALLS - 1)]
        async with asyncio.timeout(PATIENCE_S):
            await asked.wait()
            await thread.call_thread(answer)
            assert await asyncio.gather(*asking) == list(range(CALLS - 1))
    finally:
        await thread.stop()


async def test_a_rebalance_leaves_the_client_of_a_stopping_worker_open() -> None:
    """Faust closes it on the app's event loop; the worker then neither commits nor leaves the group."""
    thread: Any = object.__new__(RepairedThread)
    thread.app = SimpleNamespace(loop=asyncio.get_running_loop())
    thread._consumer = SimpleNamespace(_closed=False)
    thread.close()
    assert vars(thread._consumer) == {"_closed": False}


def test_each_member_knows_the_partition_counts_of_its_topics() -> None:
    """aiokafka's coordinator has counts on the leader only; no partitions would count as a mismatch."""
    thread: Any = object.__new__(RepairedThread)
    thread._consumer = None
    assert thread.topic_partitions("orders") is None
    known = {"orders": {0, 1, 2, 3}, "young": set[int]()}
    thread._consumer = SimpleNamespace(
        partitions_for_topic=known.get, _coordinator=SimpleNamespace(_metadata_snapshot={})
    )
    counts = [thread.topic_partitions(topic) for topic in ("orders", "young", "gone")]
    assert counts == [4, None, None]


async def test_a_subscription_to_the_same_topics_causes_a_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Faust's conductor delivers to a new channel of a subscribed topic only after the next round."""

    def during(*_: object) -> contextlib.nullcontext[None]:
        return contextlib.nullcontext()

    monkeypatch.setattr(consumer_thread, "waits_of", lambda app: SimpleNamespace(during=during))
    monkeypatch.setattr(consumer_thread, "agents_s", lambda app: 1.0)
    asked = []

    async def call_thread(function: Any, client: Any, topics: set[str]) -> bool:
        asked.append((function, client, topics))
        return True

    client = SimpleNamespace(subscription=lambda: frozenset({"orders"}))
    thread: Any = object.__new__(RepairedThread)
    thread.app, thread._consumer, thread.call_thread = None, client, call_thread
    await thread.subscribe(["orders"])
    assert asked == [(consumer_thread.change_topics, client, {"orders"})]

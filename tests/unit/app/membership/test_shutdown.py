"""A stopping worker's last requests to brokers: their order and their time limits."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from mode.threads import MethodQueue

from faust_assigner.app.membership import shutdown
from faust_assigner.app.membership.shutdown import (
    LEAST_S,
    BoundedShutdown,
    ShutdownBudget,
    _done_within,
)
from faust_assigner.app.rebalance.consumer_thread import RepairedThread
from tests.support.waiting import PATIENCE_S


async def test_what_one_wait_uses_the_next_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Afterwards each step has the least time only, and ``over`` is set for other waiters."""
    now = 100.0
    monkeypatch.setattr(shutdown, "monotonic", lambda: now)
    it = ShutdownBudget(SimpleNamespace(should_stop=True), seconds=4.0)

    async def answered(seconds: float) -> str:
        nonlocal now
        now += seconds
        return "answered"

    assert await it.within("Last flush", answered, 3.0) == "answered"
    assert (it.left, it.over.is_set()) == (1.0, False)
    assert await it.within("Last commit", answered, 1.5) == "answered"
    assert (it.left, it.over.is_set()) == (-0.5, True)
    async with asyncio.timeout(LEAST_S + 20.0):
        assert await it.within("Leaving the group", asyncio.sleep, 3600.0) is None


@pytest.mark.parametrize(
    ("left", "spent", "after", "is_over"),
    [(2.0, 1.5, 0.5, False), (2.0, 2.0, 0.0, True), (0.25, 0.375, -0.125, True)],
)
async def test_a_wait_uses_up_what_it_took_even_within_its_least_time(
    monkeypatch: pytest.MonkeyPatch, left: float, spent: float, after: float, is_over: bool
) -> None:
    """The least time of a step comes on top of the budget."""
    now = 100.0
    monkeypatch.setattr(shutdown, "monotonic", lambda: now)
    it = ShutdownBudget(SimpleNamespace(should_stop=True), seconds=left)

    async def answered() -> None:
        nonlocal now
        now += spent

    await it.within("Last flush", answered)
    assert (it.left, it.over.is_set()) == (after, is_over)


async def test_a_last_request_has_its_least_time_when_all_is_used_up() -> None:
    """A broker that answers at once does not count as silent."""
    it = ShutdownBudget(SimpleNamespace(should_stop=True), seconds=-1.0)
    assert await it.within("Leaving the group", asyncio.sleep, 0.01, "answered") == "answered"


@pytest.mark.parametrize("error", [KeyError, OSError, ValueError, ConnectionError])
async def test_any_error_of_a_last_step_is_logged_and_the_end_goes_on(
    caplog: pytest.LogCaptureFixture, error: type[Exception]
) -> None:
    """The step did not end in time; an error of Python counts as one of a broker."""

    async def fails() -> None:
        raise error("closed")

    assert await _done_within(5.0, fails) is False
    assert [record.getMessage() for record in caplog.records] == [
        f"A Kafka client failed while stopping: {error('closed')!r}"
    ]


@pytest.mark.parametrize("stops", [False, True])
async def test_a_step_gets_all_its_arguments_while_the_app_runs_and_stops(stops: bool) -> None:
    """Positions and names; the result is the step's."""
    it = ShutdownBudget(SimpleNamespace(should_stop=stops))

    async def step(*given: object, **named: object) -> object:
        return given, named

    assert await it.within("Last flush", step, 1, "b", c=3) == ((1, "b"), {"c": 3})


async def test_an_app_that_goes_on_uses_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits of a running worker are no part of the shutdown."""
    now = 100.0
    monkeypatch.setattr(shutdown, "monotonic", lambda: now)
    it = ShutdownBudget(SimpleNamespace(should_stop=False), seconds=4.0)

    async def answered() -> str:
        nonlocal now
        now += 60.0
        return "answered"

    assert await it.within("Commit", answered) == "answered"
    assert (it.left, it.over.is_set()) == (4.0, False)


async def test_a_step_that_times_out_by_itself_is_an_error_of_its_own() -> None:
    """Neither its timeout nor its other errors count as a silent broker."""

    async def fail(error: Exception) -> None:
        raise error

    it = ShutdownBudget(SimpleNamespace(should_stop=True))
    for error in (TimeoutError("its own"), RuntimeError("a bug")):
        with pytest.raises(type(error), match=str(error)):
            await it.within("Last flush", fail, error)


#: A process whose main thread ends while a service's ``Worker`` thread still runs.
LEFT_RUNNING = """
import asyncio, sys
from mode.threads import ServiceThread, WorkerThread
from faust_assigner.app.membership.shutdown import EndsWithItsProcess
from tests.support.waiting import PATIENCE_S

async def main():
    await ServiceThread(Worker=eval(sys.argv[1])).start()
    print("started", flush=True)

asyncio.new_event_loop().run_until_complete(main())
"""


@pytest.mark.parametrize("kind", ["EndsWithItsProcess", "WorkerThread"])
def test_a_consumers_thread_that_nobody_stopped_keeps_no_process_alive(kind: str) -> None:
    """Faust's thread sends heartbeats for ever and so keeps the partitions."""
    command = [sys.executable, "-c", LEFT_RUNNING, kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        try:
            if kind == "EndsWithItsProcess":
                assert process.wait(30.0) == 0
            else:
                with pytest.raises(subprocess.TimeoutExpired):
                    process.wait(1.0)
        finally:
            process.kill()


def test_the_consumers_thread_is_of_that_kind() -> None:
    """The thread of a repaired consumer names the class."""
    assert RepairedThread.Worker is shutdown.EndsWithItsProcess


class Stock:
    """Stand in for Faust's consumer; list each call in ``acts``."""

    def __init__(self) -> None:
        self.acts: list[str] = []
        self.streams = asyncio.Event()
        self.stream_error: Exception | None = None
        producer = SimpleNamespace(flush=self._noting("flush"), on_stop=self._noting("stop"))
        self.conf = SimpleNamespace(
            broker_max_poll_interval=60.0, broker_request_timeout=1.0, broker_rebalance_timeout=2.0
        )
        self.app = SimpleNamespace(should_stop=True, producer=producer, conf=self.conf)
        coordinator = SimpleNamespace(close=self._noting("leave"))
        self._thread = SimpleNamespace(
            should_stop=False,
            call_thread=lambda step, *given: step(*given),
            _consumer=SimpleNamespace(
                _coordinator=coordinator, _client=SimpleNamespace(close=self._noting("close"))
            ),
        )

    def _noting(self, name: str) -> Any:
        async def note() -> None:
            self.acts.append(name)

        return note

    async def force_commit(self, topics: Any = None, start_new_transaction: bool = True) -> bool:
        """Note the commit."""
        self.acts.append(f"force commit {topics} {start_new_transaction}")
        return True

    async def commit(self) -> None:
        """Note the commit."""
        self.acts.append("commit")

    async def wait_empty(self) -> None:
        """Wait for the streams."""
        await self.streams.wait()
        if self.stream_error is not None:
            raise self.stream_error


class Consumer(Stock):
    """The stand-in with its shutdown."""

    def __init__(self) -> None:
        super().__init__()
        self.shutdown = BoundedShutdown(self.app, self._thread)  # type: ignore[arg-type]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Consumer]:
    """A consumer of a stopping app; each last step has 0.02 s."""
    monkeypatch.setattr(shutdown, "LEAST_S", 0.02)
    consumer = Consumer()
    consumer.shutdown.budget.left = 0.02

    async def told() -> None:
        consumer.acts.append("told")

    monkeypatch.setattr(shutdown, "run_delivery_callbacks", told)
    monkeypatch.setattr(shutdown, "discard", lambda app: consumer.acts.append("discard"))
    return consumer


async def test_the_group_is_left_after_all_was_sent_committed_and_written(made: Consumer) -> None:
    """Rows land once their records are acknowledged; then a different worker may own them."""
    await made.shutdown.leave_group(made.commit)
    assert made.acts == ["flush", "commit", "told", "discard", "leave"]


async def test_a_thread_that_has_crashed_is_asked_for_nothing(made: Consumer) -> None:
    """Such a thread leaves the group itself."""
    made._thread.should_stop = True
    await made.shutdown.leave_group(made.commit)
    assert not await made.shutdown.commit(made.force_commit)
    assert made.acts == []


async def test_a_commit_goes_through_a_thread_that_works(made: Consumer) -> None:
    """The thread or the app may be stopping, as long as the other still runs."""
    assert await made.shutdown.commit(made.force_commit, {1}, False)
    made.app.should_stop, made._thread.should_stop = False, True
    assert await made.shutdown.commit(made.force_commit)
    assert made.acts == ["force commit {1} False", "force commit None True"]


@pytest.mark.parametrize("stops", [True, False])
async def test_streams_are_waited_for(made: Consumer, stops: bool) -> None:
    """A running worker waits as Faust does."""
    made.app.should_stop = stops
    waiting = asyncio.ensure_future(made.shutdown.wait_for_streams(made.wait_empty))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    made.streams.set()
    await asyncio.wait_for(waiting, PATIENCE_S)


async def test_streams_that_wait_for_a_silent_broker_are_left(made: Consumer) -> None:
    """No task continues to wait for the streams."""
    waiting = asyncio.ensure_future(made.shutdown.wait_for_streams(made.wait_empty))
    await asyncio.sleep(0.01)
    made.shutdown.budget.over.set()
    await asyncio.wait_for(waiting, PATIENCE_S)
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize("stops", ["before", "meanwhile"])
async def test_a_stuck_agent_is_left_after_the_longest_time_of_a_record(
    made: Consumer, caplog: pytest.LogCaptureFixture, stops: str
) -> None:
    """Without unsent records no wait for a broker uses the budget up; Faust waits for ever."""
    conf = made.conf
    conf.broker_max_poll_interval, conf.broker_request_timeout = 0.05, 0.02
    conf.broker_rebalance_timeout = 0.02
    made.app.should_stop = stops == "before"
    waiting = asyncio.ensure_future(made.shutdown.wait_for_streams(made.wait_empty))
    await asyncio.sleep(0.12)
    assert waiting.done() is (stops == "before")
    made.app.should_stop = True
    await asyncio.wait_for(waiting, PATIENCE_S)
    assert len(asyncio.all_tasks()) == 1
    assert [record.getMessage() for record in caplog.records] == [
        "Agents have not finished their records after 0 s (broker_max_poll_interval); the next "
        "owners process these records again"
    ]


async def test_a_late_step_ends_although_it_ignores_a_cancellation(
    made: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mode's queue ignores one cancellation in each call that waits, and makes the next call."""
    monkeypatch.setattr(shutdown, "CANCEL_S", 0.01)
    loop = asyncio.get_running_loop()
    queue, promises = MethodQueue(loop=loop), [loop.create_future() for _ in range(4)]
    for promise in promises:
        await queue.call(promise, for_ever)
    await asyncio.sleep(0)
    async with asyncio.timeout(PATIENCE_S):
        assert not await _done_within(0.01, queue.flush)
        await asyncio.wait(promises)
    assert {type(promise.exception()) for promise in promises} == {asyncio.CancelledError}


async def test_streams_that_are_left_have_ended_before_the_consumer_goes_on(made: Consumer) -> None:
    """Their last steps would meet a closed client."""

    class Slow(asyncio.Event):
        """Streams that need 20 turns of the loop to end."""

        has_ended = False

        async def wait(self) -> Any:
            """Wait, and end slowly."""
            try:
                return await super().wait()
            finally:
                for _ in range(20):
                    await asyncio.sleep(0)
                self.has_ended = True

    streams = made.streams = Slow()
    waiting = asyncio.ensure_future(made.shutdown.wait_for_streams(made.wait_empty))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    made.shutdown.budget.over.set()
    await waiting
    assert streams.has_ended


async def test_an_error_of_the_streams_is_raised(made: Consumer) -> None:
    """The error is the reason for the empty streams."""
    made.stream_error = RuntimeError("a stream has crashed")
    made.streams.set()
    with pytest.raises(RuntimeError, match="crashed"):
        await made.shutdown.wait_for_streams(made.wait_empty)


async def for_ever() -> None:
    """Wait as for a broker that never answers."""
    await asyncio.sleep(3600)


async def test_the_client_of_a_consumer_that_could_not_leave_is_closed(
    made: Consumer, caplog: Any
) -> None:
    """Its connections are closed; the log names the consequence for the group."""
    await made.shutdown.stop_client(made._thread._consumer._coordinator.close)
    assert (made.acts, caplog.text) == (["leave"], "")
    await made.shutdown.stop_client(for_ever)
    assert made.acts == ["leave", "close"]
    assert "Could not leave the group" in caplog.text
    made._thread._consumer = None
    await made.shutdown.stop_client(for_ever)


async def test_all_clients_of_a_producer_that_could_not_stop_are_closed(made: Consumer) -> None:
    """The clients of its transactions are closed as well."""

    def sender(name: str) -> Any:
        return SimpleNamespace(client=SimpleNamespace(close=made._noting(name)))

    producer = SimpleNamespace(
        _producer=sender("plain"), _transaction_producers={"a": sender("a"), "b": sender("b")}
    )
    await made.shutdown._stop_producer(producer, made._noting("stop"))
    assert made.acts == ["stop"]
    await made.shutdown._stop_producer(producer, for_ever)
    assert sorted(made.acts[1:]) == ["a", "b", "plain"]


async def test_the_clients_of_a_producer_that_forgot_them_before_it_hung_are_closed(
    made: Consumer,
) -> None:
    """Faust's producer clears its references first, and then waits for the broker."""
    sender = SimpleNamespace(client=SimpleNamespace(close=made._noting("plain")))
    other = SimpleNamespace(client=SimpleNamespace(close=made._noting("transaction")))
    producer: Any = SimpleNamespace(_producer=sender, _transaction_producers={"a": other})

    async def stop() -> None:
        producer._producer = None
        producer._transaction_producers.clear()
        await for_ever()

    await made.shutdown._stop_producer(producer, stop)
    assert made.acts == ["plain", "transaction"]


@pytest.mark.parametrize(("left", "given"), [(3.0, 3.0), (-1.0, 0.02)])
async def test_a_producer_stops_within_what_is_left_or_the_least_time(
    made: Consumer, monkeypatch: pytest.MonkeyPatch, left: float, given: float
) -> None:
    """The limit equals the limit of the other last steps."""
    limits = []

    async def done_within(seconds: float, step: Any) -> bool:
        limits.append(seconds)
        return True

    monkeypatch.setattr(shutdown, "_done_within", done_within)
    made.shutdown.budget.left = left
    await made.shutdown._stop_producer(SimpleNamespace(_producer=None), for_ever)
    assert limits == [given]


async def test_each_connection_of_a_silent_producer_is_closed_within_the_least_time(
    made: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plain producer's connection first, then those of the transactions."""
    steps: list[Any] = []

    async def done_within(seconds: float, step: Any) -> bool:
        steps.append((seconds, step))
        return False

    monkeypatch.setattr(shutdown, "_done_within", done_within)
    monkeypatch.setattr(shutdown, "LEAST_S", 0.25)
    made.shutdown.budget.left = 3.0
    senders = [
        SimpleNamespace(client=SimpleNamespace(close=f"close {name}"))
        for name in ("plain", "b", "a")
    ]
    producer = SimpleNamespace(
        _producer=senders[0], _transaction_producers={"b": senders[1], "a": senders[2]}
    )
    stop: Any = "stop"
    await made.shutdown._stop_producer(producer, stop)
    closes = [(0.25, f"close {name}") for name in ("plain", "b", "a")]
    assert steps == [(3.0, "stop"), *closes]


async def test_a_step_that_is_cancelled_from_within_is_not_done() -> None:
    """A cancellation of the whole task is passed on."""

    async def cancelled() -> None:
        raise asyncio.CancelledError

    assert not await _done_within(5.0, cancelled)
    waiting = asyncio.ensure_future(_done_within(60.0, for_ever))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not await _done_within(0.0, for_ever)
    assert await _done_within(5.0, lambda: asyncio.sleep(0))


async def test_flush_and_commit_are_steps_of_one_budget_with_their_names(
    made: Consumer, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """The app's producer is flushed within the budget; the log names the step and its limit."""
    consumer = Consumer()
    monkeypatch.setattr(consumer.app.producer.flush.func.__self__, "left", 0.03)
    assert consumer.shutdown.budget.app is consumer.app

    async def silent(self: Any, *_: Any) -> bool:
        await for_ever()
        return True

    monkeypatch.setattr(Stock, "force_commit", silent)
    await consumer.app.producer.flush()
    assert consumer.acts == ["flush"]
    assert not await consumer.shutdown.commit(consumer.force_commit)
    assert "Last commit: the broker did not answer within 0.0 s" in caplog.text
    assert consumer.shutdown.budget.over.is_set()
    consumer.acts.clear()
    await consumer.app.producer.on_stop()
    assert consumer.acts == ["stop"]


@pytest.mark.parametrize("coordinator", [None, SimpleNamespace()])
async def test_a_client_without_a_group_leaves_none(made: Consumer, coordinator: Any) -> None:
    """Its records are flushed and committed nevertheless."""
    made._thread._consumer._coordinator = coordinator
    await made.shutdown.leave_group(made.commit)
    assert made.acts == ["flush", "commit", "told", "discard"]


@pytest.mark.parametrize(("left", "given"), [(3.0, 3.0), (0.02, 0.02), (-1.0, 0.02)])
async def test_the_group_and_the_client_are_left_within_what_is_left_or_the_least_time(
    made: Consumer, monkeypatch: pytest.MonkeyPatch, left: float, given: float
) -> None:
    """The client gets a further least time if it could not leave."""
    limits: list[tuple[float, Any]] = []

    async def done_within(seconds: float, step: Any) -> bool:
        limits.append((seconds, step))
        return False

    monkeypatch.setattr(shutdown, "_done_within", done_within)
    monkeypatch.setattr(shutdown, "monotonic", lambda: 100.0)
    client = made._thread._consumer
    made.shutdown.budget.left = left
    await made.shutdown.stop_client(for_ever)
    assert limits == [(given, for_ever), (0.02, client._client.close)]
    limits.clear()
    client._coordinator._maybe_leave_group = for_ever
    monkeypatch.setattr(made.shutdown.budget, "within", lambda what, call, *step: call(*step))
    await made.shutdown.leave_group(made.commit)
    first = max(given - 0.02, 0.02)
    assert limits == [(first, client._coordinator.close), (0.02, for_ever)]


async def test_a_client_that_fails_while_it_stops_is_not_done(caplog: Any) -> None:
    """The error is logged, and the next step follows."""

    async def fail() -> None:
        raise OSError("reset by peer")

    assert not await _done_within(5.0, fail)
    assert "failed while stopping: OSError('reset by peer')" in caplog.text


async def test_the_producer_of_the_app_stops_within_the_budget(
    monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """Faust waits for ever; here the producer's client is closed."""
    noting = Stock._noting
    monkeypatch.setattr(shutdown, "LEAST_S", 0.02)
    monkeypatch.setattr(
        Stock, "_noting", lambda self, name: for_ever if name == "stop" else noting(self, name)
    )
    consumer = Consumer()
    consumer.shutdown.budget.left = 0.02
    consumer.app.producer._producer = SimpleNamespace(
        client=SimpleNamespace(close=consumer._noting("close"))
    )
    await asyncio.wait_for(consumer.app.producer.on_stop(), PATIENCE_S)
    assert consumer.acts == ["close"]
    assert "The producer's last records may be lost" in caplog.text

"""How records are collected into batches, when a batch is ready, and the current event."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from faust.streams import Stream as Host
from faust.streams import _current_event
from faust.types import TP
from faust.types.tuples import Message

from faust_assigner.app.consumer import stream_take as module
from faust_assigner.app.consumer.delivery import Lanes
from faust_assigner.app.consumer.in_progress import in_progress
from faust_assigner.app.consumer.stream_take import LOOK_S, BatchingStream
from tests.support.waiting import PATIENCE_S

A, B = TP("orders", 0), TP("orders", 1)


class Event:
    """A record in the stream."""

    def __init__(self, value: Any, tp: TP = A, *, generation: int = 3) -> None:
        self.value = value
        self.message = SimpleNamespace(tp=tp, timestamp=42.0, generation_id=generation)


class Stock(Host):  # type: ignore[misc]
    """Stand in for Faust's stream; the test is its reader."""

    should_stop: bool = False

    def __init__(self) -> None:
        self.should_stop, self.enable_acks = False, True
        self.channel, self.current_event = "channel", None
        self.held: list[Any] = []
        self.acked: list[Any] = []
        self.current: list[Any] = []
        self.readers, self.has_failed = 0, False
        self.waits = False
        #: The values that a commit waits for, and the values behind the last held batch.
        self.urgent: list[Any] = []
        self.behind: list[Any] = []
        self._active_agens: set[Any] = set()
        self._processors: list[Any] = ["echo"]
        held = SimpleNamespace(
            wait_for_commit=self._wait_for_commit,
            first_waited_for=self._first_waited_for,
            waits_for=lambda events: self.waits,
        )
        transactions = SimpleNamespace(held=held)
        #: The given-up messages: a list, because these messages have no hash.
        given_up: list[Any] = []
        self.consumer = SimpleNamespace(
            transactions=transactions,
            leaving=frozenset(),
            _unacked_messages=set(),
            kept_back=SimpleNamespace(given_up=given_up, give_up=given_up.extend),
        )
        self.flows = True
        self.app = SimpleNamespace(
            in_transaction=True,
            should_stop=False,
            consumer_generation_id=3,
            consumer=self.consumer,
            conf=SimpleNamespace(stream_wait_empty=True),
            flow_control=SimpleNamespace(is_active=lambda: self.flows),
        )

    async def _wait_for_commit(self, event: Any, queued: Any) -> None:
        self.held.append(event.value)
        self.behind = [one.value for one in queued()]

    def _first_waited_for(self, events: Any) -> Any:
        return next((event for event in events if event.value in self.urgent), None)

    def add_processor(self, processor: Any) -> None:
        """Add a processor, as in Faust."""
        self._processors.append(processor)

    def add_future(self, reading: Any) -> Any:
        """Count a reader of the stream; the test reads in its place."""
        reading.close()
        self.readers += reading.__name__ != "_give_up_untaken"
        return SimpleNamespace(done=lambda: self.has_failed)

    def __aiter__(self) -> Any:
        return self

    async def ack(self, event: Any) -> None:
        """Note the acknowledged value."""
        self.acked.append(event.value)

    async def wait(self, event: Any) -> Any:
        """Wait for the event or the stop, as in mode."""
        while not (event.is_set() or self.should_stop):
            await asyncio.sleep(0.001)
        return SimpleNamespace(stopped=self.should_stop)

    async def wait_for_stopped(self, *events: Any, timeout: float | None = None) -> bool:
        """Return True when the service stops or the time runs out, as in mode."""
        loop = asyncio.get_running_loop()
        end = None if timeout is None else loop.time() + timeout
        while not (self.should_stop or any(event.is_set() for event in events)):
            if end is not None and loop.time() >= end:
                return True
            await asyncio.sleep(0.001)
        return self.should_stop


class Stream(BatchingStream, Stock):  # type: ignore[misc]
    """BatchingStream over the stand-in, under ``exactly_once``."""

    async def read(self, *events: Event) -> None:
        """Pass each record through the processors, as the stream's reader does."""
        for event in events:
            self.current_event = event
            assert self._buffer is not None
            await self._buffer.collect(event.value)


async def next_of(batches: Any) -> list[Any]:
    """Return the next batch."""
    # no task of its own: the current event belongs to this task
    async with asyncio.timeout(PATIENCE_S):
        found: list[Any] = await anext(batches)
    return found


async def nothing_of(batches: Any, seconds: float = 0.3) -> Any:
    """Return a task that waits for the next batch, still pending after ``seconds``."""
    waiting = asyncio.ensure_future(anext(batches))
    await asyncio.sleep(seconds)
    assert not waiting.done()
    return waiting


@pytest.fixture
async def made() -> Stream:
    """A stream."""
    return Stream()


async def test_a_full_batch_is_handed_out_at_once_and_the_next_begins_empty(made: Stream) -> None:
    """Without a time limit the stream hands out full batches only."""
    batches = made.take(2, None)
    waiting = await nothing_of(batches, 0.01)
    await made.read(Event(1), Event(2))
    assert await waiting == [1, 2]
    reading = asyncio.ensure_future(made.read(Event(3)))
    waiting = await nothing_of(batches)
    await reading
    await made.read(Event(4))
    assert await waiting == [3, 4]


async def test_a_value_without_a_record_is_refused(made: Stream) -> None:
    """A value without an event has no partition, so it fits in no batch."""
    made.take(2, None)
    assert made._buffer is not None
    made.current_event = None
    with pytest.raises(RuntimeError, match="a stream whose values are records"):
        await made._buffer.collect(1)
    assert made._buffer.filling == []


@pytest.mark.parametrize("method", ["take", "take_events", "take_with_timestamp", "noack_take"])
async def test_without_transactions_a_batch_mixes_partitions(made: Stream, method: str) -> None:
    """The order is that of the records, and no commit holds the batch back; no event is current."""
    made.app.in_transaction = False
    args = (4, 0.05, "") if method == "take_with_timestamp" else (4, 0.05)
    made.keep_processors()
    batches = getattr(made, method)(*args)
    events = [Event(1), Event(2, B), Event(3)]
    await made.read(*events)
    has_events = method in ("take_events", "noack_take")
    assert await next_of(batches) == (events if has_events else [1, 2, 3])
    assert _current_event.get(None) is None
    await batches.aclose()
    assert (made.acked, made.held) == ([] if method == "noack_take" else [1, 2, 3], [])


async def test_an_error_of_the_reader_ends_the_run_after_the_batch_before_it(made: Stream) -> None:
    """A processor has failed; the next run begins a reader of its own, and the error comes once."""
    made.keep_processors()
    batches = made.take(3, 60.0)
    await made.read(Event(1))
    assert made._buffer is not None
    await made._buffer.throw(ValueError("filter"))
    assert await next_of(batches) == [1]
    with pytest.raises(ValueError, match="filter"):
        await next_of(batches)
    made.has_failed = True
    batches = made.take(3, 0.05)
    await made.read(Event(2))
    assert (await next_of(batches), made.readers) == ([2], 2)


async def test_records_that_a_revocation_has_given_up_are_not_handed_out(made: Stream) -> None:
    """Their new owner reads them; a cooperative round does not change the generation."""
    batches = made.take_events(3, 0.05)
    events = [Event(1), Event(2), Event(3)]
    for event in events:
        event.message.offset = event.value  # else the messages are equal
    await made.read(*events)
    made.consumer.kept_back.give_up([events[1].message])
    assert await next_of(batches) == [events[0], events[2]]


async def test_the_reader_waits_for_the_end_of_the_batch_that_its_record_has_filled(
    made: Stream,
) -> None:
    """The end of an earlier batch must not release it: replies would go to another request."""
    made.app.in_transaction = False
    made.keep_processors()
    batches = made.take(2, 0.05)
    await made.read(Event(1))
    assert await next_of(batches) == [1]
    reading = asyncio.ensure_future(made.read(Event(2), Event(3), Event(4)))
    assert await next_of(batches) == [2, 3]
    await asyncio.sleep(0.05)
    assert made.current_event.value == 3  # type: ignore[attr-defined]
    assert await next_of(batches) == [4]
    await reading


async def test_a_record_is_in_progress_while_a_stream_or_its_agent_has_it(made: Stream) -> None:
    """A record of a topic without a stream, or of an agent that acknowledges by itself, may be, too."""
    made.channel = SimpleNamespace(topics=["orders"])
    made.__aiter__()
    events = [Event(number) for number in range(4)]
    foreign = Event(9, TP("bills", 0))

    def found() -> list[Any]:
        messages = [event.message for event in (*events, foreign)]
        active = in_progress(made.app, messages)
        return [event.value for event in (*events, foreign) if event.message in active]

    for number, event in enumerate(events):
        event.message.offset = number  # else the messages are equal
    made.current_event = events[3]
    assert found() == [3, 9], "a plain stream"
    batches = made.take(1, 0.05)
    await made.read(events[0])
    assert await next_of(batches) == [0]
    await made.read(events[1])
    made.current_event = events[2]
    assert found() == [0, 1, 2, 9], "taken, collected, being read"
    await batches.aclose()
    assert found() == [1, 2, 9]
    made.noack_take(1, 0.05)
    assert found() == [0, 1, 2, 3, 9]


async def test_the_message_of_a_window_that_is_being_closed_is_in_progress(made: Stream) -> None:
    """No stream has this message; the closing ends it."""
    made.channel = SimpleNamespace(topics=["orders"])
    made.__aiter__()
    closing = Message("orders", 0, 3, 42.0, 0, None, None, None, None, tp=A)
    assert in_progress(made.app, [Event(1).message, closing]) == [closing]


async def test_a_size_of_zero_is_a_size_of_one(made: Stream) -> None:
    """As in stock Faust."""
    batches = made.take(0, None)
    await made.read(Event(1))
    assert await next_of(batches) == [1]


async def test_events_are_handed_out_as_they_are(made: Stream) -> None:
    """``take_events`` yields whole events and acknowledges them as ``take`` does."""
    batches = made.take_events(2, 0.05)
    events = [Event(1), Event(2)]
    await made.read(*events)
    assert await next_of(batches) == events
    await batches.aclose()
    assert (made.acked, made.held) == ([1, 2], [1])


async def test_what_a_time_limit_finds_is_handed_out(made: Stream) -> None:
    """The stream hands out a batch per partition, beginning with the oldest record's partition."""
    batches = made.take(9, 0.05)
    await made.read(Event(1, B), Event(2), Event(3, B))
    assert await next_of(batches) == [1, 3]
    assert await next_of(batches) == [2]


async def test_a_time_limit_that_finds_nothing_begins_again(made: Stream) -> None:
    """The stream hands out no empty batch."""
    waiting = await nothing_of(made.take(9, 0.02), 0.1)
    await made.read(Event(1))
    assert await asyncio.wait_for(waiting, PATIENCE_S) == [1]


async def test_the_reader_waits_while_a_batch_is_full(made: Stream) -> None:
    """The reader continues once the agent takes the batch, or once the stream stops."""
    batches = made.take(1, None)
    await made.read(Event(1))
    reading = asyncio.ensure_future(made.read(Event(2)))
    await asyncio.sleep(0.01)
    assert not reading.done()
    assert await next_of(batches) == [1]
    await asyncio.wait_for(reading, PATIENCE_S)
    blocked = asyncio.ensure_future(made.read(Event(3)))
    await asyncio.sleep(0.01)
    made.should_stop = True
    await asyncio.wait_for(blocked, PATIENCE_S)


async def test_an_agent_that_calls_take_on_and_on_leaves_a_stopped_stream(made: Stream) -> None:
    """The calls return no batch; Faust cancels the agent some turns of the event loop later."""
    calls = 0

    async def call() -> None:
        nonlocal calls
        while calls < 100:
            calls += 1
            assert [batch async for batch in made.take(1, 0.01)] == []

    made.should_stop = True
    calling = asyncio.ensure_future(call())
    await asyncio.sleep(0)
    calling.cancel()
    await asyncio.wait([calling])
    assert (calling.cancelled(), calls) == (True, 1)


async def test_a_batch_is_acknowledged_when_the_agent_asks_for_the_next(made: Stream) -> None:
    """Until then the batch's last event is current, so sends belong to the whole batch."""
    batches = made.take(2, 0.05)
    assert not made.enable_acks, "the reader would acknowledge each at once"
    await made.read(Event(1), Event(2))
    await next_of(batches)
    current: Any = _current_event.get()
    assert current is not None
    assert (current().value, made.acked) == (2, [])
    reading = asyncio.ensure_future(made.read(Event(3)))
    await next_of(batches)
    await reading
    assert made.acked == [1, 2]
    await batches.aclose()
    assert made.acked == [1, 2, 3]
    assert _current_event.get() is None, "what is sent later belongs to no record"


async def test_an_agent_that_acknowledges_by_itself_is_left_to_it(made: Stream) -> None:
    """The stream neither acknowledges these records nor waits for a commit before the batch."""
    batches = made.noack_take(3, 0.05)
    await made.read(Event(1), Event(2))
    assert [event.value for event in await next_of(batches)] == [1, 2]
    await batches.aclose()
    assert (made.acked, made.held) == ([], [])


async def test_a_batch_is_held_back_by_its_first_record(made: Stream) -> None:
    """A commit may wait for the records before the first record of the batch."""
    batches = made.take(2, 0.05)
    await made.read(Event(1), Event(2))
    await next_of(batches)
    assert made.held == [1]


async def test_records_of_a_former_generation_are_in_no_batch(made: Stream) -> None:
    """The next owner of their partitions reads these records again."""
    batches = made.take(3, 0.05)
    await made.read(Event(3, B, generation=2), Event(1, generation=2), Event(2))
    assert await next_of(batches) == [2]


@pytest.mark.parametrize("field", ["at", ""])
async def test_values_that_are_dicts_get_the_time_of_their_record(made: Stream, field: str) -> None:
    """The agent's field name is used; an empty name adds no field."""
    batches = made.take_with_timestamp(2, 0.05, field)
    await made.read(Event({"a": 1, "at": 7.0}), Event("text"))
    stamped = {"a": 1, "at": 42.0 if field else 7.0}
    assert await next_of(batches) == [stamped, "text"]


async def test_the_next_agent_takes_up_what_was_read_with_its_own_size(made: Stream) -> None:
    """The stream adds its processors once and closes both batch generators at its end."""
    first = made.take(5, None)
    await made.read(Event(1))
    second = made.take(2, None)
    assert len(made._processors) == 3
    assert made._active_agens == {first, second}
    await made.read(Event(2))
    assert await next_of(second) == [1, 2]


@pytest.mark.parametrize("reason", ["stops", "flow", "leaving", "commit"])
async def test_a_batch_that_something_waits_for_is_handed_out_as_it_is(
    made: Stream, reason: str
) -> None:
    """A stop, a rebalance or a commit ends the wait for a batch with records only."""
    batches = made.take(9, 3_600.0)
    waiting = await nothing_of(batches, 0.01)
    if reason == "stops":
        made.app.should_stop = True
    elif reason == "flow":
        made.flows = False
    elif reason == "leaving":
        made.consumer.leaving = frozenset({B})
    else:
        made.waits = True
    await asyncio.sleep(0.25)
    assert not waiting.done()
    await made.read(Event(1), Event(2, B))
    assert await asyncio.wait_for(waiting, PATIENCE_S) == [1]


async def test_a_partition_that_leaves_takes_no_batch_of_others_along(made: Stream) -> None:
    """The batch of a kept partition continues to fill."""
    batches = made.take(9, 3_600.0)
    made.consumer.leaving = frozenset({B})
    await made.read(Event(1))
    waiting = await nothing_of(batches, 0.25)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


def test_the_streams_processors_begin_with_the_one_that_holds_back(made: Stream) -> None:
    """The holding processor comes before all senders; a self-acknowledging agent has none."""
    made.enable_acks = False
    iter_of = made.__aiter__
    iter_of()
    assert made._processors == ["echo"]
    made.enable_acks = True
    iter_of(), iter_of()
    assert made._processors == [made._hold, "echo"]


async def test_a_batch_that_a_commit_waits_for_is_handed_out_first(made: Stream) -> None:
    """Behind the held batch are the other batches, the records after them, and the stream's queue."""
    made.channel = SimpleNamespace(
        queue=SimpleNamespace(_queue=Lanes([Event(5), Event(6), Event(7, B)]))
    )
    batches = made.take(2, None)
    await made.read(Event(1), Event(2, B))
    made.urgent = [2]
    assert await next_of(batches) == [2]
    assert made.behind == [5, 7, 1]
    reading = asyncio.ensure_future(made.read(Event(3), Event(4), Event(8)))
    await asyncio.sleep(0.01)
    assert await next_of(batches) == [1]
    assert made.behind == [5, 7, 3, 4, 8]
    made.should_stop = True
    await reading


# -- streams that no agent reads, without transactions: Faust makes the batches


@pytest.fixture
async def plain() -> Stream:
    """A stream with an unacknowledged record of ``A``."""
    stream = Stream()
    stream.app.in_transaction = False
    stream.consumer._unacked_messages = {Held(A)}
    return stream


class Held:
    """A record in an unfinished batch."""

    def __init__(self, tp: TP) -> None:
        self.tp, self.acked = tp, False


async def wait(stream: Stream, *, full: bool = False, timeout: float = 60.0) -> bool:
    """Wait as Faust's ``take`` does."""
    event = asyncio.Event()
    if full:
        event.set()
    async with asyncio.timeout(PATIENCE_S):
        return await stream.wait_for_stopped(event, timeout=timeout)


@pytest.mark.parametrize("method", ["take", "take_events", "take_with_timestamp", "noack_take"])
async def test_batches_without_transactions_and_agent_are_fausts_own(method: str) -> None:
    """Faust gets the same arguments; the stream keeps its processors and acknowledgements."""
    stream, asked = Stream(), list[Any]()

    def stock(self: Any, *args: Any) -> str:
        asked.append(args)
        return "Faust's"

    stream.app.in_transaction = False
    args = (3, 0.5, "at") if method == "take_with_timestamp" else (3, 0.5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stock, method, stock, raising=False)
        assert getattr(stream, method)(*args) == "Faust's"
    assert asked == [args]
    stream.__aiter__()
    assert (stream._processors, stream.enable_acks, stream._buffer) == (["echo"], True, None)


async def test_a_wait_for_a_batch_ends_when_it_is_full_or_its_time_is_over(plain: Stream) -> None:
    """The wait returns False for a full batch and True at the end of its time."""
    assert not await wait(plain, full=True)
    began = asyncio.get_running_loop().time()
    assert await wait(plain, timeout=0.25)
    assert asyncio.get_running_loop().time() - began >= 0.24


@pytest.mark.parametrize("reason", ["stops", "flow", "leaving"])
async def test_a_wait_for_a_batch_ends_where_its_records_hold_up_a_round(
    plain: Stream, reason: str
) -> None:
    """The wait ends long before its time limit."""
    if reason == "stops":
        plain.app.should_stop = True
    elif reason == "flow":
        plain.flows = False
    else:
        plain.consumer.leaving = frozenset({A})
    assert await wait(plain)


@pytest.mark.parametrize("reason", ["other partitions", "no records", "nobody waits"])
async def test_a_wait_for_a_batch_goes_on_where_it_holds_up_nothing(
    plain: Stream, reason: str
) -> None:
    """The batch may fill up to its size or time limit."""
    if reason == "other partitions":
        plain.consumer.leaving = frozenset({B})
    else:
        plain.flows = False
        if reason == "no records":
            plain.consumer._unacked_messages = set()
        else:
            plain.app.conf.stream_wait_empty = False
    waiting = asyncio.ensure_future(wait(plain))
    await asyncio.sleep(0.3)
    assert not waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


class Waited:
    """A stream whose Faust waits take their whole time; ``asked`` lists the waits' arguments."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, most: int = 9) -> None:
        self.now, self.asked, self.most = 1000.0, list[Any](), most
        loop = SimpleNamespace(time=lambda: self.now)
        monkeypatch.setattr(module.asyncio, "get_running_loop", lambda: loop)
        monkeypatch.setattr(Stock, "wait_for_stopped", self._wait)
        self.stream, self.events = Stream(), [asyncio.Event(), asyncio.Event()]
        self.stream.app.in_transaction = False

    async def _wait(self, *events: Any, timeout: float | None = None) -> bool:
        self.asked.append((events, None if timeout is None else round(timeout, 6)))
        self.now += timeout or 0.0
        if len(self.asked) == self.most:
            self.events[1].set()
        return True

    @property
    def times(self) -> list[float | None]:
        """Return the seconds of each wait."""
        return [timeout for _, timeout in self.asked]


async def test_a_batch_is_looked_at_every_moment_until_its_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last wait is as long as the remaining time; each of the events ends the wait."""
    waited = Waited(monkeypatch)
    assert await waited.stream.wait_for_stopped(*waited.events, timeout=2.5 * LOOK_S)
    assert waited.times == [LOOK_S, LOOK_S, LOOK_S / 2]
    assert {events for events, _ in waited.asked} == {tuple(waited.events)}
    waited = Waited(monkeypatch, most=4)
    assert not await waited.stream.wait_for_stopped(*waited.events)
    assert waited.times == [LOOK_S] * 4, "without a limit until it is full"
    waited = Waited(monkeypatch)
    waited.stream.should_stop = True
    assert await waited.stream.wait_for_stopped(*waited.events)
    assert waited.times == [LOOK_S]


async def test_a_wait_for_other_things_is_fausts_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait for anything else than events goes to Faust with the caller's timeout."""
    waited, channel = Waited(monkeypatch), object()
    assert await waited.stream.wait_for_stopped(channel, waited.events[0], timeout=7.0)
    assert waited.asked == [((channel, waited.events[0]), 7.0)]


async def test_a_batch_is_filled_until_its_time_is_over_look_by_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last wait is as long as the remaining time; without a limit they end with a full batch."""
    waited, stream = Waited(monkeypatch), Stream()
    stream.take(5, None)
    basket = stream._buffer
    assert basket is not None
    await stream._fill(basket, 2.5 * LOOK_S)
    assert waited.asked == [((basket.full,), t) for t in (LOOK_S, LOOK_S, LOOK_S / 2)]
    waited = Waited(monkeypatch, most=3)
    waited.events[1] = basket.full
    await stream._fill(basket, None)
    assert waited.times == [LOOK_S] * 3
    stream.should_stop = True
    basket.full.clear()
    await stream._fill(basket, None)
    assert len(waited.asked) == 3

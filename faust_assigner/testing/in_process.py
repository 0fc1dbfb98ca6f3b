"""A worker of a fleet in the test's process: a complete Faust worker on its own thread and loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from faust_assigner.testing import apps
from faust_assigner.testing.clock import Alarm, Clock, MovedLoop
from faust_assigner.testing.reporting import State, report

if TYPE_CHECKING:
    from faust.types.tuples import TP

T = TypeVar("T")
PATIENCE_S = 60.0
#: Real seconds for which the fetcher waits for records; short, so that tests are fast.
POLL_S = 0.01
#: While a worker stops, its clock advances by ``HURRY_S`` in each ``PAUSE_S`` of real time.
HURRY_S, PAUSE_S = 0.05, 0.002
#: The number of passes of the event loop that the work of a fired timer may need.
ROUNDS = 10
#: The most real seconds that a turn waits for pending sends and calls of the consumer's thread.
ANSWERED_S = 1.0


class Progress(NamedTuple):
    """The progress of a worker: unfinished records, received records, and positions."""

    under_way: int
    begun: int
    #: Partition of a source topic -> the next offset to read.
    positions: Mapping[TP, int]


class InProcess:
    """A worker that may be stopped and started again; ``app`` is the app since the last start."""

    def __init__(
        self,
        name: str,
        source: apps.AppSource,
        folder: Path,
        clock: Clock,
        kill: Callable[[], None],
    ) -> None:
        self.name, self.folder, self.state = name, folder, State()
        self._source, self._clock, self._cut_off = source, clock, kill
        self._thread: threading.Thread | None = None
        self._gate: threading.Event | None = None
        self.error: BaseException | None = None
        self.app: Any = None
        self.loop: MovedLoop
        self._up = threading.Event()
        #: The number of pending sends plus pending calls of the consumer's thread; polls do not count.
        self._calls = 0

    # -- a life

    def start(self, settings: Mapping[str, object]) -> None:
        """Start the app on its own thread; return once its loop runs."""
        (self.folder / "data").mkdir(parents=True, exist_ok=True)
        self.error, self.loop, self._calls = None, MovedLoop(self._clock), 0
        self._up.clear()
        self._thread = threading.Thread(
            target=self._run, args=(dict(settings),), name=f"worker-{self.name}", daemon=True
        )
        self._thread.start()
        if not self._up.wait(PATIENCE_S):
            raise AssertionError(
                f"waited {PATIENCE_S:g} s for: the app of {self.name} to be imported"
            )
        if self.error is not None:
            self._join()
            raise self.error

    def _run(self, settings: Mapping[str, object]) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            with apps.configured(settings):
                self.app = apps.load_copy(self._source)
                self.app.finalize()
            report(self.app, self.state.take)
            life = self.loop.create_task(self._live())
            self.loop.call_soon(self._up.set)
            self.loop.run_until_complete(life)
        except BaseException as error:
            self.error = error
        finally:
            self._up.set()
            self._close_loop()

    async def _live(self) -> None:
        self._over = asyncio.Event()
        self._use_the_tests_time()
        starting = asyncio.ensure_future(self.app.start())
        waiting = asyncio.ensure_future(self._over.wait())
        crashed = asyncio.ensure_future(self.app._crashed.wait())
        ends = {waiting, crashed}
        await asyncio.wait({starting, *ends}, return_when=asyncio.FIRST_COMPLETED)
        # An error after the order to stop is not the app's: a killed worker is cut off while it starts.
        refused = None if waiting.done() or not starting.done() else starting.exception()
        if refused is None:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        stopping = asyncio.ensure_future(self.app.stop())
        began = time.monotonic()
        while not stopping.done() and time.monotonic() - began < PATIENCE_S / 3:
            await self.loop.run_in_executor(None, time.sleep, PAUSE_S)
            self.loop.extra_s += HURRY_S
        for task in (starting, waiting, crashed, stopping):
            task.cancel()
        await asyncio.gather(starting, waiting, crashed, stopping, return_exceptions=True)
        if (error := self._crash or refused) is not None:
            raise error

    def _use_the_tests_time(self) -> None:
        """Shorten the consumer's polls, count its pending calls, and give records the test's time."""
        consumer = self.app.consumer
        get = consumer._getmany
        consumer._getmany = lambda active_partitions, timeout: get(
            active_partitions=active_partitions, timeout=min(timeout, POLL_S)
        )
        thread = consumer._thread
        call = thread.call_thread

        async def counted(function: object, *args: object, **options: object) -> Any:
            is_poll = function == thread._fetch_records
            self._calls += not is_poll
            try:
                return await call(function, *args, **options)
            finally:
                self._calls -= not is_poll

        thread.call_thread = counted
        self._stamp(self.app.producer)

    def _stamp(self, producer: Any) -> None:
        """Make the app's records have the test's time as their timestamp.

        A send counts as a pending call until the producer has taken the record: before that the
        producer may wait for the metadata of a new topic, in real time.
        """

        def stamped(
            send: Callable[..., Awaitable[object]], counts: bool
        ) -> Callable[..., Awaitable[object]]:
            async def sent(
                topic: str,
                key: object,
                value: object,
                partition: object,
                timestamp: object,
                *args: object,
                **options: object,
            ) -> object:
                at = self._clock.time() if timestamp is None else timestamp
                self._calls += counts
                try:
                    return await send(topic, key, value, partition, at, *args, **options)
                finally:
                    self._calls -= counts

            return sent

        producer.send = stamped(producer.send, counts=True)
        producer.send_and_wait = stamped(producer.send_and_wait, counts=False)

    def _close_loop(self) -> None:
        with contextlib.suppress(RuntimeError):
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.run_until_complete(asyncio.sleep(0))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
        asyncio.set_event_loop(None)
        self.loop.close()

    @property
    def alive(self) -> bool:
        """Whether the worker has started and not ended; a frozen worker is alive."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def is_frozen(self) -> bool:
        """Whether the worker is frozen."""
        return self._gate is not None

    def check(self) -> None:
        """Raise the error of the worker's thread, if any."""
        if self.error is not None:
            raise self.error

    def why_not(self) -> str:
        """Return the worker's state as text, for the message of a failed wait."""
        if self.error is not None:
            return f"{type(self.error).__name__}: {self.error}"
        return str(self.state)

    @property
    def _crash(self) -> BaseException | None:
        crash: BaseException | None = getattr(self.app, "crash_reason", None)
        return crash

    # -- events

    def stop(self) -> None:
        """Stop as after SIGTERM: hand partitions over, leave the group, close the tables."""
        self.thaw()
        if self.alive:
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(lambda: self._over.set())
        self._join()

    def kill(self) -> None:
        """Stop as after SIGKILL: the worker is cut off, so it does not leave the group."""
        self._cut_off()
        self.stop()

    def freeze(self) -> None:
        """Freeze as after SIGSTOP: the worker's threads stand still until :meth:`thaw`."""
        if self.is_frozen:
            return  # the threads wait for the present gate
        gate = self._gate = threading.Event()
        for loop in self._loops():
            loop.call_soon_threadsafe(gate.wait)

    def thaw(self) -> None:
        """Continue as after SIGCONT."""
        gate, self._gate = self._gate, None
        if gate is not None:
            gate.set()

    def _loops(self) -> Iterator[asyncio.AbstractEventLoop]:
        yield self.loop
        thread = getattr(self.app._consumer, "_thread", None)
        if thread is not None:
            yield thread.thread_loop

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join(PATIENCE_S)
            if self._thread.is_alive():
                raise AssertionError(f"waited {PATIENCE_S:g} s for: the worker {self.name} to stop")
        self._thread = None
        self.state.end()

    # -- calls on its loop

    def run(self, coroutine: Coroutine[object, None, T], what: str) -> T:
        """Run a coroutine on the worker's loop."""
        if not self.alive or self.is_frozen:
            coroutine.close()
            raise AssertionError(f"the worker {self.name} does not run: {self.why_not()}")
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(PATIENCE_S)
        except TimeoutError:
            raise AssertionError(f"waited {PATIENCE_S:g} s for: {what}") from None
        except RuntimeError:
            if self._crash is None:
                raise
            raise self._crash from None

    async def _turn(self) -> Alarm:
        for loop in list(self._loops())[1:]:
            with contextlib.suppress(RuntimeError):
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop))
        for _ in range(ROUNDS):
            await asyncio.sleep(0)
        began = time.monotonic()
        while self._calls and time.monotonic() - began < ANSWERED_S:
            await self.loop.run_in_executor(None, time.sleep, PAUSE_S / 4)
        return self.loop.next_alarm()

    def turn(self) -> Alarm:
        """Run all due work of the worker and of its consumer's thread; return the next timer."""
        return self.run(self._turn(), f"a turn of the worker {self.name}")

    def progress(self) -> Progress:
        """Return the worker's progress. Raises AssertionError if the worker does not answer."""
        return self.run(self._progress(), f"the positions of the worker {self.name}")

    async def _progress(self) -> Progress:
        app, thread = self.app, self.app.consumer._thread
        changelogs = app.tables.changelog_topics

        async def positions() -> dict[TP, int]:
            client = thread._ensure_consumer()
            tps = [tp for tp in client.assignment() if tp.topic not in changelogs]
            return {tp: await client.position(tp) for tp in tps}

        return Progress(
            len(app.consumer._unacked_messages),
            app.monitor.messages_received_total,
            await thread.call_thread(positions),
        )

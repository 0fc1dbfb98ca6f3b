"""One event loop with a virtual clock for a whole worker, so that each run has the same order of steps.

The consumer's thread runs in the app's loop. The clock moves only while no task can run, to the next
timer. A call in a thread (``asyncio.to_thread``) ends before the loop continues.
"""

from __future__ import annotations

import asyncio
import contextvars
import selectors
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from types import FunctionType
from typing import Any, TypeVar
from unittest.mock import patch

from faust.types import TP

from tests.support.workers.virtual_kafka import (
    VirtualConsumer,
    VirtualFetcher,
    VirtualKafkaConsumer,
    VirtualThread,
    VirtualTransport,
)

T = TypeVar("T")
#: The seconds at which each clock starts.
START_S = 1_000.0
WALL_S = 1_800_000_000.0
#: The packages whose clocks are replaced.
PACKAGES = ("faust_assigner.", "faust.", "mode.", "tests.")


class SimulatedSelector(selectors.DefaultSelector):
    """A selector that moves the clock of its loop instead of waiting."""

    now = START_S

    def select(self, timeout: float | None = None) -> list[Any]:
        """Return the sockets that are ready now; if there are none, move the clock by ``timeout``."""
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "no task can run and no timer is set"
            self.now += max(timeout, 0.0)
        return ready


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop on the virtual clock."""

    def __init__(self) -> None:
        self.clock = SimulatedSelector()
        super().__init__(self.clock)

    def time(self) -> float:
        """Return the virtual time."""
        return self.clock.now

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:  # type: ignore[override]
        """Run ``func`` in a thread of its own and wait for its end; return a done future."""
        done, found = self.create_future(), list[Any]()
        context = contextvars.copy_context()

        def work() -> None:
            try:
                found.append((done.set_result, context.run(func, *args)))
            except BaseException as error:  # the caller gets it
                found.append((done.set_exception, error))

        thread = threading.Thread(target=work, name="simulated")
        thread.start()
        thread.join(60.0)
        [(end, result)] = found
        end(result)
        return done


@contextmanager
def simulated_clocks(loop: SimulatedLoop) -> Iterator[None]:
    """Make the packages read the clock of ``loop``, also where they imported a function of ``time``."""
    monotonic = loop.time

    def wall() -> float:
        return WALL_S + loop.time() - START_S

    clocks: dict[Any, Callable[[], float]] = {time.monotonic: monotonic, time.time: wall}
    clocks[time.perf_counter] = monotonic
    patches = [patch.object(time, one.__name__, new) for one, new in clocks.items()]
    for name, module in list(sys.modules.items()):
        if name.startswith(PACKAGES):
            patches += [
                patch.object(module, attribute, clocks[value])
                for attribute, value in list(vars(module).items())
                if is_clock(value)
            ]
            patches += _in_defaults(module, clocks)
    before, started = set(sys.modules), list[Any]()
    try:
        for one in patches:
            one.start()
            started.append(one)
        yield
    finally:
        for one in reversed(started):
            one.stop()
    late = [
        name
        for name in sys.modules.keys() - before
        if name.startswith(PACKAGES) and set(clocks.values()) & _hashable(sys.modules[name])
    ]
    assert not late, f"import {late} before the simulation: they keep its clock"


def _hashable(module: Any) -> set[Any]:
    """Return the functions of ``module``."""
    return {value for value in vars(module).values() if callable(value) and value.__hash__}


def is_clock(value: object) -> bool:
    """Return whether ``value`` is a function of ``time`` that reads a clock."""
    return value is time.monotonic or value is time.time or value is time.perf_counter


def _in_defaults(module: Any, clocks: Mapping[Any, Any]) -> Iterator[Any]:
    """Yield a patch for each function of ``module`` that has a clock as the default of a parameter."""
    made = [
        value
        for value in vars(module).values()
        if getattr(value, "__module__", "") == module.__name__
    ]
    for one in made:
        for function in [one, *(vars(one).values() if isinstance(one, type) else ())]:
            if isinstance(function, FunctionType):
                defaults, named = function.__defaults__ or (), function.__kwdefaults__ or {}
                if any(map(is_clock, defaults)):
                    changed = tuple(clocks[v] if is_clock(v) else v for v in defaults)
                    yield patch.object(function, "__defaults__", changed)
                if any(map(is_clock, named.values())):
                    replaced = {k: clocks[v] if is_clock(v) else v for k, v in named.items()}
                    yield patch.object(function, "__kwdefaults__", replaced)


def simulate(life: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run ``life()`` to its end on a new loop with a virtual clock."""
    loop = SimulatedLoop()
    with simulated_clocks(loop), asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(life())


class SimulatedFetcher(VirtualFetcher):
    """The fetcher; it looks for records twenty times in a virtual second."""

    async def fetched_records(
        self, partitions: Any, timeout: float = 0, max_records: int | None = None
    ) -> dict[Any, Any]:
        """Return records after the positions of ``partitions``; of all assigned ones if empty."""
        end = time.monotonic() + (timeout or 0)
        while True:
            found = await super().fetched_records(partitions, 0, max_records)
            if found or time.monotonic() >= end:
                return found
            await asyncio.sleep(0.05)


class SimulatedConsumer(VirtualConsumer):
    """The client."""

    def __init__(self, logs: Any, max_poll_records: int | None) -> None:
        super().__init__(logs, max_poll_records)
        self._fetcher = SimulatedFetcher(self)


class SimulatedThread(VirtualThread):
    """The consumer's thread, which runs in the app's loop instead."""

    client_class: type[SimulatedConsumer] = SimulatedConsumer

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, thread_loop=asyncio.get_running_loop(), **options)

    def _create_consumer(self, loop: asyncio.AbstractEventLoop) -> Any:
        return self.app.new_client()

    async def start(self) -> None:
        """Start without a thread."""
        self._thread_started.set()
        self._thread_running = running = asyncio.get_running_loop().create_future()
        self.add_future(self._keepalive2())
        self.serving = asyncio.create_task(self._serve())
        await running
        self._thread_running = None

    async def stop(self) -> None:
        """Stop, and wait for the end of the task that stands for the thread."""
        if self._started.is_set():
            await super().stop()
            await self.serving

    def verify_recovery_event_path(self, now: float, tp: TP) -> None:
        """Ignore aiokafka's internals, which Faust watches."""

    async def _gather_remaining_tasks(self) -> None:
        """Leave the other tasks alone: they belong to the app."""


class SimulatedKafkaConsumer(VirtualKafkaConsumer):
    """The driver's consumer on that thread."""

    thread_class = SimulatedThread

    def _new_consumer_thread(self) -> Any:
        return SimulatedThread(self, loop=self.loop, beacon=self.beacon)


class SimulatedTransport(VirtualTransport):
    """The driver with the simulated consumer."""

    Consumer = SimulatedKafkaConsumer

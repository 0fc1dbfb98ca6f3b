"""``fleet``: starts and stops workers of an app on an embedded broker, and reports the moves.

>>> with Fleet("examples.clicks.app", Path(folder)) as shop:            # doctest: +SKIP
...     shop.send("clicks", key="ada", value=1)
...     shop.advance(20)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self, TypeAlias

from faust_assigner.broker import EmbeddedBroker
from faust_assigner.testing import apps, log, turns
from faust_assigner.testing.clock import REAL_TIME, Clock
from faust_assigner.testing.faults import Faults, with_faults
from faust_assigner.testing.in_process import InProcess
from faust_assigner.testing.moves import (
    Member,
    Moves,
    Owners,
    join_phrases,
    move_phrases,
    moves,
    owners,
)
from faust_assigner.testing.processes import Worker
from faust_assigner.testing.reporting import Part, State
from faust_assigner.testing.rest import wait_for_rest

#: Seconds without a change of owners after which a group counts as at rest.
QUIET_S = 1.0


class Fleet:
    """Workers ``w1``, ``w2``, ... of one app.

    ``app`` is ``"package.module"`` or ``"package.module:name"``, or a function that returns a new app.
    ``processes`` starts each worker as a separate process; otherwise the workers run in this process, start
    in a fraction of a second, and :meth:`advance` moves their time. ``settings`` are Faust's settings with
    priority over the app's own. ``partitions`` is the number of partitions of each source topic; by default
    the app's ``topic_partitions``. Raises AppNotFound.
    """

    def __init__(
        self,
        app: apps.AppSource,
        folder: Path,
        *,
        workers: int = 1,
        processes: bool = False,
        static: bool = False,
        partitions: int | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        apps.check(app, needs_path=processes)
        self.app, self.folder, self.processes, self.static = app, folder, processes, static
        self.clock = Clock()
        self.workers: dict[str, Member] = {}
        self._count, self._partitions = workers, partitions
        self._settings = dict(settings or {})
        self._faults = Faults()
        self._stack = contextlib.ExitStack()
        self._before: Owners = {}
        self._is_at_rest = False

    # -- start and end

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the broker and the workers; return when the group is at rest."""
        broker = EmbeddedBroker(clock=lambda: int(REAL_TIME() * 1000))
        self.broker = self._stack.enter_context(broker)
        self.broker.call(lambda node: with_faults(self.broker.server, self._faults))
        self._stack.enter_context(apps.environment())
        if not self.processes:
            self._stack.enter_context(self.clock.as_time())
        self._create_topics()
        for _ in range(self._count):
            self.add()
        is_single = self._count == 1
        self._wait_for_rest(0.0 if is_single else QUIET_S, turns.PATIENCE_S, is_hurried=is_single)

    def close(self) -> None:
        """End all workers and the broker, even if one of them fails to end. May be called repeatedly."""
        with self._stack, contextlib.ExitStack() as ends:
            for worker in self.workers.values():
                ends.callback(self._end, worker)
            for worker in self.workers.values():
                ends.callback(worker.thaw)

    def _end(self, worker: Member) -> None:
        if worker.alive:
            worker.kill() if self.processes else worker.stop()

    def _create_topics(self) -> None:
        with apps.configured(
            apps.settings_of("topics", self.broker.bootstrap, self.folder, self._settings)
        ):
            app = apps.load_copy(self.app)
            app.finalize()
        count = self._partitions or int(app.conf.topic_partitions)
        self._settings["topic_partitions"] = count
        for agent in app.agents.values():
            for topic in getattr(agent.channel, "topics", None) or ():
                log.create(self.broker, topic, getattr(agent.channel, "partitions", None) or count)
        self.app_id = str(app.conf.id)

    def _launch(self, name: str) -> None:
        before, folder = self.workers.get(name), self.folder / name
        own = {"consumer_group_instance_id": name} if self.static else {}
        settings = apps.settings_of(name, self.broker.bootstrap, folder, own | self._settings)
        self._faults.dead.discard(name)
        if self.processes:
            state = State() if before is None else before.state
            self.workers[name] = Worker.launch(name, folder, str(self.app), settings, state)
            return
        worker = before or InProcess(
            name, self.app, folder, self.clock, lambda: self._faults.kill(name)
        )
        assert isinstance(worker, InProcess)
        self.workers[name] = worker
        worker.start(settings)

    # -- events

    def add(self) -> str:
        """Add a worker; return its name."""
        self._begin()
        name = f"w{len(self.workers) + 1}"
        self._launch(name)
        return name

    def stop(self, name: str) -> None:
        """Stop a worker as by SIGTERM: it hands its partitions over and leaves the group."""
        self._begin()
        self._worker(name).stop()

    def kill(self, name: str) -> None:
        """Kill a worker as by SIGKILL: the group removes the worker after its session timeout."""
        self._begin()
        self._worker(name).kill()

    def freeze(self, name: str) -> None:
        """Freeze a worker as by SIGSTOP, until :meth:`bring_back`."""
        self._begin()
        self._worker(name).freeze()

    def bring_back(self, name: str) -> None:
        """Thaw a frozen worker; restart a killed or stopped worker, with its files."""
        self._begin()
        worker = self._worker(name)
        if worker.is_frozen:
            worker.thaw()
        elif not worker.alive:
            self._launch(name)

    def _worker(self, name: str) -> Member:
        if name not in self.workers:
            raise AssertionError(
                f"there is no worker {name!r}; the workers: {sorted(self.workers)}"
            )
        return self.workers[name]

    def _begin(self) -> None:
        """Remember the owners before an event, to which :meth:`moves` compares the later owners."""
        if self._is_at_rest:
            self._before, self._is_at_rest = self.owners(), False
            for worker in self.workers.values():
                worker.state.begin()

    # -- records

    def send(
        self,
        topic: str,
        value: object,
        *,
        key: object = None,
        partition: int | None = None,
        at: float | None = None,
    ) -> None:
        """Write a record to ``topic`` at the fleet's time, or at ``at``.

        Without ``processes`` the call returns when the workers are idle; a waiting agent is idle.
        """
        now = self.clock.time() if at is None else at
        log.append(self.broker, topic, key, value, now, partition)
        self._process()

    def send_all(self, topic: str, records: Iterable[tuple[object, object]]) -> None:
        """Write each (key, value) to ``topic``, then wait once until the workers are idle."""
        for key, value in records:
            log.append(self.broker, topic, key, value, self.clock.time(), None)
        self._process()

    def _process(self) -> None:
        if not self.processes:
            turns.run_until_idle(self.workers, self.broker, self.clock)

    def records(self, topic: str) -> list[log.Record]:
        """Return all records of ``topic`` by time: the app's output, or a table's changelog."""
        return log.read(self.broker, topic)

    def table(self, name: str) -> dict[Any, Any]:
        """Return the rows of a table, of all workers' partitions together, from its changelog.

        A row of a windowed table has the key ``(key, (begin, end))``.
        """
        return log.rows(self.records(f"{self.app_id}-{name}-changelog"))

    # -- time

    def advance(self, seconds: float) -> None:
        """Advance time by ``seconds``: timers fire in order, agents' timeouts end, windows close.

        ``time.time()`` in the app and the time of later records advance too. A sleep of two seconds
        or more ends exactly on time. A shorter sleep ends up to a quarter of a second late; after
        the first minute, up to a second late. Cost: about 0.1 s for 20 s, and some seconds for an
        hour. Raises AssertionError for a fleet that was started with ``processes``.
        """
        if self.processes:
            raise AssertionError(
                "advance() moves the time of workers in this process only: start the fleet without "
                "processes=True"
            )
        turns.advance(self.workers, self.broker, self.clock, seconds)

    # -- rest and moves

    def settle(self, *, quiet_s: float = QUIET_S, timeout_s: float = turns.PATIENCE_S) -> None:
        """Wait until each partition has an owner, all tables are restored and no rebalance is in progress."""
        self._wait_for_rest(quiet_s, timeout_s)

    def _wait_for_rest(self, quiet_s: float, timeout_s: float, *, is_hurried: bool = False) -> None:
        """Wait until the group is at rest; with ``is_hurried`` the workers' time passes faster."""

        def let_time_pass() -> None:
            if is_hurried and not self.processes:
                self.clock.move(turns.IDLE_STEP_S * 20)

        self.clock.run()
        wait_for_rest(self.workers, self.broker, quiet_s, timeout_s, let_time_pass)
        self.clock.hold()
        self._is_at_rest = True

    def owners(self) -> Owners:
        """Return the owner of each task; a task is (group of co-partitioned topics, number)."""
        return owners(worker for worker in self.workers.values() if not worker.is_frozen)

    def moves(self) -> Moves:
        """Wait for rest; return the tasks that the last event moved: task -> (from, to)."""
        if not self._is_at_rest:
            self.settle()
        return moves(self._before, self.owners())

    def cold_moves(self) -> list[tuple[Part, str]]:
        """Wait for rest; return (changelog partition, new owner) for new owners without its rows."""
        if not self._is_at_rest:
            self.settle()
        return sorted(
            (part, worker.name)
            for worker in self.workers.values()
            for part in worker.state.cold
            if log.ends(self.broker, part.topic)[part.number]
        )

    def assert_moves(self, *, max: int, min: int = 0) -> None:
        """Assert that the last event moved at most ``max`` tasks (and at least ``min``)."""
        moved = self.moves()
        assert min <= len(moved) <= max, (
            f"{len(moved)} tasks moved, expected {min} to {max}: {join_phrases(move_phrases(moved))}"
        )

    def assert_no_cold_moves(self) -> None:
        """Assert that no task of a table with rows went to a worker without any of its rows."""
        cold = self.cold_moves()
        assert not cold, f"{len(cold)} cold moves: " + join_phrases(
            [f"{part.topic}-{part.number} to {name}" for part, name in cold]
        )


#: The fixture ``fleet``: takes the arguments of :class:`Fleet`, without the folder.
StartFleet: TypeAlias = Callable[..., Fleet]

"""The watchdog: it makes sure that a worker processes records, logs its wait once a minute, or ends with an
error.

The watchdog checks the recovery's loops, the fetcher, the consumer's thread and aiokafka's own tasks. It also
runs the checks that other modules register with :func:`must_run`. Stock Faust does not notice the end of such
a task: the worker stays in the group and sends heartbeats, but its partitions stand still. Rebalances and
commits have deadlines (``consumer/waits.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from faust.exceptions import PartitionsMismatch
from faust.types.enums import ProcessingGuarantee
from mode import Service, get_logger

from faust_assigner.app.consumer.waits import waits_of
from faust_assigner.app.membership.topics import mismatches, refuse_patterns, sources_of, verify
from faust_assigner.app.recovery.table_manager import RecoveringTables
from faust_assigner.app.retry import SAY_EVERY_S, RateLimitedLog

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer
    from faust.app import App
    from faust.types.app import AppT
    from faust.types.tables import CollectionT
    from faust.types.tuples import TP
    from mode import Service

logger = get_logger(__name__)

#: Seconds between two checks.
LOOK_S = 1.0
#: The worker ends after this number of consecutive checks with the same problem.
LOOKS = 3
#: Seconds after which a recovery that is due but does not run is started again.
STALLED_S = 10.0

_MARK = "_faust_assigner_must_run"


class CannotGoOn(Exception):
    """Raised if a task of this worker has ended or has waited for too long; the worker must restart."""


def must_run(app: App, name: str, problem: Callable[[], str | None]) -> None:
    """Make ``app``'s watchdog call ``problem()`` every second.

    The worker ends if the call returns the same text ``LOOKS`` times in succession. A second check with the
    same ``name`` replaces the first.
    """
    vars(app).setdefault(_MARK, {})[name] = problem


def runs_task(service: Service, task: str) -> bool:
    """Return whether ``service`` runs the task named ``task``.

    Also True before the service's start and after its stop.
    """
    if not service.started or service.should_stop:
        return True
    return any(
        getattr(future.__wrapped__, "__name__", "") == task
        for future in list(service._futures)
        if not future.done()
    )


def aiokafka_problem(consumer: AIOKafkaConsumer | None) -> str | None:
    """Return a description of the problem of a started AIOKafkaConsumer; None without a problem.

    A stopped consumer has no problem.
    """
    if consumer is None or consumer._closed:
        return None
    coordinator, fetcher = (
        getattr(consumer, "_coordinator", None),
        getattr(consumer, "_fetcher", None),
    )
    # A pending error blocks the coordinator until the error is retrieved, and Faust never retrieves it.
    pending = getattr(coordinator, "_pending_exception", None)
    if pending is not None:
        return f"the group coordinator gave up: {pending!r}"
    for what, task in (
        ("membership", getattr(coordinator, "_coordination_task", None)),
        ("fetching", getattr(fetcher, "_fetch_task", None)),
    ):
        if isinstance(task, asyncio.Future) and task.done():
            reason = None if task.cancelled() else task.exception()
            return f"aiokafka's {what} has ended: {reason!r}"
    return None


class Watchdog:
    """Checks a worker every second.

    The watchdog also compares the partition counts of changelogs and sources: at each assignment, and every
    second until all counts are known and match. If a topic gets more partitions later, Faust's check at a
    write finds the mismatch.
    """

    def __init__(self, tables: Any) -> None:
        self._tables, self._topics_checked = tables, False

    def topic_problem(self) -> str | None:
        """Return a description of the first table with a mismatch; None if no mismatch is found.

        The topics are not checked again once all counts were known and matched.
        """
        if self._topics_checked:
            return None
        tables, app = self._tables, self._tables.app
        problem = next(mismatches(app, tables.values()), None)
        names = {*sources_of(app), *app.tables.changelog_topics}
        self._topics_checked = problem is None and all(map(app.consumer.topic_partitions, names))
        return problem

    async def watch(self) -> None:
        """Check the worker until it stops; raise CannotGoOn for a problem at ``LOOKS`` successive checks."""
        tables = self._tables
        dead: dict[str, int] = {}
        said = RateLimitedLog()
        idle_since: float | None = None
        looked = monotonic()
        while not tables.should_stop and not tables.app.should_stop:
            await tables.sleep(LOOK_S)
            looked = self._look_at_waits(looked)
            dead = {text: dead.get(text, 0) + 1 for _, text in self.problems()}
            for text, looks in dead.items():
                if looks >= LOOKS and not tables.app.should_stop:
                    raise CannotGoOn(text)
            idle_since = self._begin_stalled_again(idle_since)
            self._log_wait(said)

    def _look_at_waits(self, looked: float) -> float:
        """Add the time since ``looked`` to the current waits, log long waits, and return the current time."""
        now = monotonic()
        # The time in which the process or the machine was suspended does not count as a wait.
        seconds = min(now - looked, 2 * LOOK_S)
        consumer, waits = self._tables.app.consumer, waits_of(self._tables.app)
        answers = getattr(consumer, "group_answers", lambda: True)()
        has_left = getattr(consumer, "has_left_group", lambda: False)()
        for line in waits.advance(seconds, group_answers=answers, has_left=has_left):
            logger.warning("%s", line)
        return now

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield the name and the description of each problem, such as a task that has ended."""
        if self._tables.should_stop or self._tables.app.should_stop:
            return
        for task in ("_restart_recovery", "_slurp_changelogs"):
            if not runs_task(self._tables.recovery, task):
                yield task, f"the recovery's {task} has ended"
        if not runs_task(self._tables.app._fetcher, "_fetcher"):
            yield "fetcher", "the fetcher has ended"
        thread = getattr(self._tables.app.consumer, "_thread", None)
        if thread is not None and thread.started and not thread.should_stop:
            if thread._thread is not None and not thread._thread.is_alive():
                yield "thread", "the consumer's thread has ended"
            elif problem := aiokafka_problem(getattr(thread, "_consumer", None)):
                yield "aiokafka", problem
        if mismatch := self.topic_problem():
            yield "topics", mismatch
        if overdue := waits_of(self._tables.app).problem():
            yield "waits", overdue
        for name, find in vars(self._tables.app).get(_MARK, {}).items():
            if found := find():
                yield name, found

    def _begin_stalled_again(self, since: float | None) -> float | None:
        """Start a recovery again if it has been due for ``STALLED_S`` seconds without running.

        ``since`` and the result: the time since which the recovery is due; None if it is not due.
        """
        recovery, app = self._tables.recovery, self._tables.app
        due = (
            recovery.idle
            and not recovery.signal_recovery_start.is_set()
            and recovery._generation_id
            == app.consumer_generation_id
            != recovery.completed_generation
            and not app.consumer.between_generations
            and bool(app.consumer.assignment())
        )
        if not due:
            return None
        since = monotonic() if since is None else since
        if monotonic() - since < STALLED_S:
            return since
        logger.error(
            "The recovery of generation %s stopped before its end; it is started again",
            app.consumer_generation_id,
        )
        recovery.restart_recovery()
        return None

    def _log_wait(self, said: RateLimitedLog) -> None:
        waiting = self._tables.recovery.waiting_for
        if waiting is None:
            return
        what, since = waiting
        seconds = monotonic() - since
        if seconds >= SAY_EVERY_S and said.due(waiting):
            logger.warning(
                "Partitions stand still: the recovery has waited for %.0f s: %s", seconds, what
            )


def warn_without_transactions(app: AppT) -> None:
    """Log a warning if ``app`` has the guarantee ``exactly_once`` and uses no transactions."""
    guarantee: object = app.conf.processing_guarantee
    if guarantee == ProcessingGuarantee.EXACTLY_ONCE and not app.in_transaction:
        logger.warning(
            "App %s has processing_guarantee='exactly_once', but its records are processed at least "
            "once: Faust uses transactions only in `faust worker` and in the first app of "
            "faust.Worker. In any other process set app.in_worker = True before the app starts",
            app.conf.id,
        )


class RepairedTables(RecoveringTables):
    """A table manager that restores tables by partition and runs the watchdog."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        self.watchdog = Watchdog(self)

    def add(self, table: CollectionT) -> CollectionT:
        """Add ``table``; a mismatch of partition counts at a write ends the worker, not only the agent."""
        table._verify_source_topic_partitions = partial(
            verify, self.app, table._verify_source_topic_partitions
        )
        return super().add(table)

    async def on_start(self) -> None:
        """Start; raise ImproperlyConfigured if an agent's topic is a pattern."""
        refuse_patterns(self.app.agents.items())
        warn_without_transactions(self.app)
        await super().on_start()

    async def on_rebalance(
        self, assigned: set[TP], revoked: set[TP], newly_assigned: set[TP], generation_id: int = 0
    ) -> None:
        """Handle a rebalance; raise PartitionsMismatch, which ends the app, if a table fits no source."""
        await self.recovery.stop_and_wait()
        if assigned and (problem := self.watchdog.topic_problem()):
            raise PartitionsMismatch(problem)
        await super().on_rebalance(assigned, revoked, newly_assigned, generation_id)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield the name and the description of each problem of the worker, for the liveness probe."""
        return self.watchdog.problems()

    @Service.task  # type: ignore[untyped-decorator]
    async def _watch(self) -> None:
        await self.watchdog.watch()

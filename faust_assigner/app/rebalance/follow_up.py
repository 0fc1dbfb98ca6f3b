"""A follow-up round, Kafka's probing rebalance: a task is brought to its place once it is warm there.

It was promoted away from there, or its owner kept it until its state had moved. The leader tells each member
which of its standbys are awaited. This service of the worker compares them with the ends of their changelogs,
as the broker knows them, and when all have caught up asks for one round. An eager round stops the whole group
for a moment, a cooperative one costs requests: none is asked for within ``FAUST_ASSIGNER_FOLLOW_UP_S`` of the
last, whoever caused that, by default less after a cooperative one; nor twice for one assignment. Where
the last one that was asked for changed nothing, one waits twice as long.

With warm-ups a round moves only what has caught up. So where some have and others take long, a round is asked
for after a while, and one that is not done by ``FAUST_ASSIGNER_WARMUP_DEADLINE_S`` is given up: the leader is
told, and asks for another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from faust.types import TP
from mode import Service, get_logger

from faust_assigner.app import settings
from faust_assigner.app.rebalance.positions import is_doubtful
from faust_assigner.settings.table import FOLLOW_UP_S, WARMUP_DEADLINE_S, WARMUPS

logger = get_logger(__name__)

#: Seconds between two looks.
LOOK_INTERVAL_S = 1.0
#: Seconds between a round and one that is asked for, where nothing else is set: after one in which everybody
#: went on, and after one that stopped all.
COOPERATIVE_S, EAGER_S = 5.0, 30.0
#: Seconds between two lines about what is waited for.
TELL_S = 60.0
#: A question to the consumer about one partition, None where it does not know.
Ask: TypeAlias = Callable[[Any, TP], Coroutine[Any, Any, int | None]]
MARK = "_faust_assigner_follow_up"
#: After so many cool-downs those that have caught up no longer wait for the others.
PATIENCE = 4
#: Seconds that brokers have to say where changelogs end.
ASK_S = 2.0
#: A round that changes nothing makes the next one wait twice as long, up to this many times.
MOST_PATIENCE = 32


@dataclass(frozen=True)
class Awaited:
    """Of the assignment of ``generation``, the standbys that a follow-up round waits for.

    Those of one partition number whose topics have one id in ``group_ids`` are the state of one task.
    ``follows``: a second round follows at once, and only that one's answer names them.
    """

    generation: int = -1
    tps: frozenset[TP] = frozenset()
    group_ids: Mapping[str, int] = field(default_factory=dict)
    follows: bool = False

    def whole(self, done: frozenset[TP]) -> frozenset[TP]:
        """Those of ``done`` whose task can move: all of its state is there."""
        behind = {self._task(tp) for tp in self.tps - done}
        return frozenset(tp for tp in done if self._task(tp) not in behind)

    def _task(self, tp: TP) -> tuple[int | str, int]:
        return self.group_ids.get(tp.topic, tp.topic), tp.partition


def by_topic(tps: Iterable[TP]) -> dict[str, list[int]]:
    """The same as claims."""
    found: dict[str, list[int]] = {}
    for tp in sorted(tps):
        found.setdefault(tp.topic, []).append(tp.partition)
    return found


class FollowUp(Service):  # type: ignore[misc]
    """Watches one worker's awaited standbys; started after the first recovery, ends with the app.

    ``cool_down_s`` None depends on what the last round was. ``deadline_s`` is how long one of them is waited
    for; None without warm-ups, when a round moves all of them, caught up or not, and is therefore asked for
    when all have.
    """

    def __init__(
        self, app: Any, cool_down_s: float | None, *, deadline_s: float | None = None, **kwargs: Any
    ) -> None:
        self.app = app
        self.cool_down_s = cool_down_s
        self.deadline_s = deadline_s
        self._first: Mapping[TP, float] = {}
        self._slower = 1
        self._seen = Awaited()
        self._since = 0.0
        #: What the round that was asked for was to move; None before one was.
        self._asked_for: frozenset[TP] | None = None
        #: What the last one was to move and did not.
        self._in_vain: frozenset[TP] = frozenset()
        self._ends: Mapping[TP, int] | None = None
        self._told, self._behind = 0.0, 0  # the last line's time, and the records that lack
        super().__init__(**kwargs)

    @Service.task  # type: ignore[untyped-decorator]
    async def _watch(self) -> None:
        while not self.should_stop:
            await self.sleep(LOOK_INTERVAL_S)
            try:
                await self.look(asyncio.get_running_loop().time())
            except Exception as exc:  # a broker that does not answer; there is another look
                logger.debug("No look at the awaited standbys: %r", exc)

    async def look(self, now: float) -> None:
        """One look at ``now``, in seconds of any clock that only goes forward."""
        awaited: Awaited = self.app.assignor.awaited
        if awaited.follows:
            return
        if self.app.assignor.is_unheard and self._at_rest():
            await self._ask_to_be_heard(awaited.generation)
            return
        if awaited is not self._seen:
            self._begin(awaited, now)
        waited, cool_down_s = now - self._since, self._cool_down_s() * self._slower
        if (
            self._asked_for is not None
            or not awaited.tps
            or not self._at_rest()
            or waited < cool_down_s
        ):
            return
        is_first = self._ends is None
        read = await self._caught_up(awaited)
        if is_first:
            return  # nothing to compare with, so nothing is known to be late
        done = awaited.whole(frozenset(read))
        # What the leader does not take for done, moves no round either.
        late = self._late(awaited.tps - (done - self._in_vain), now)
        enough = (
            done == awaited.tps
            or bool(late)
            or (self.deadline_s is not None and bool(done) and waited >= PATIENCE * cool_down_s)
        )
        if not enough and now - self._told >= TELL_S:
            self._told = now
            logger.info(
                "%d of %d awaited standbys have caught up, the others lack %d records",
                len(read),
                len(awaited.tps),
                self._behind,
            )
        if enough and self._at_rest() and self.app.assignor.awaited is awaited:
            is_asked = await self._ask(awaited, {tp: read[tp] for tp in done}, late)
            self._asked_for = done | late if is_asked else frozenset()

    def _cool_down_s(self) -> float:
        if self.cool_down_s is not None:
            return self.cool_down_s
        return COOPERATIVE_S if self.app.assignor.stops_nobody else EAGER_S

    def _begin(self, awaited: Awaited, now: float) -> None:
        """Another assignment; what it goes on to wait for has been waited for since it first was."""
        asked_for = self._asked_for or frozenset()
        if asked_for or not awaited.tps <= self._seen.tps:
            self._in_vain = asked_for if asked_for <= awaited.tps else frozenset()
            self._slower = min(2 * self._slower, MOST_PATIENCE) if self._in_vain else 1
        # Else another one asked, and nothing came of that here: two who ask in turn would never slow down.
        self._first = {tp: self._first.get(tp, now) for tp in awaited.tps}
        self._seen, self._since, self._asked_for, self._ends, self._told = (
            awaited,
            now,
            None,
            None,
            now,
        )
        if awaited.tps:
            logger.info(
                "%d standbys are awaited: when they have caught up, in %g s at the earliest, a round "
                "is asked for that moves their tasks here",
                len(awaited.tps),
                self._cool_down_s() * self._slower,
            )

    def _late(self, behind: frozenset[TP], now: float) -> frozenset[TP]:
        if self.deadline_s is None:
            return frozenset()
        return frozenset(tp for tp in behind if now - self._first[tp] >= self.deadline_s)

    def _at_rest(self) -> bool:
        """No rebalance is under way and no table is being restored."""
        recovery = self.app.tables.recovery
        return not (
            self.app.rebalancing
            or recovery.in_recovery
            or self.app.should_stop
            or getattr(recovery, "is_taking_on", False)
        )

    async def _caught_up(self, awaited: Awaited) -> Mapping[TP, int]:
        """Those that have all that their changelog held at the last look: the end itself runs away.

        Each with the offset up to which it has been read.
        """
        ends = self._ends or {}
        read = await read_to(self.app, ends)
        self._ends = await ends_of(self.app, sorted(awaited.tps))
        recovery = self.app.tables.recovery
        done = {
            tp: read[tp]
            for tp, end in ends.items()
            if read[tp] >= end and not is_doubtful(recovery, tp)
        }
        lacks = {tp: end - read.get(tp, 0) for tp, end in self._ends.items() if tp not in done}
        self._behind = sum(max(0, lack) for lack in lacks.values())
        return done

    async def _ask_to_be_heard(self, generation: int) -> None:
        """A static member came back with other offers or topics, and without a round no leader knows it."""
        thread = self.app.consumer._thread
        if await thread.call_thread(_rejoin, self.app, generation, {}):
            self.app.assignor.is_unheard = False
            logger.info(
                "Asked for a round after generation %d: this static member restarted with another "
                "capacity, rack or subscription, which the leader reads in a round only",
                generation,
            )

    async def _ask(self, awaited: Awaited, done: Mapping[TP, int], late: frozenset[TP]) -> bool:
        if late:
            self.app.assignor.overdue |= late
        if not await self.app.consumer._thread.call_thread(
            _rejoin, self.app, awaited.generation, done
        ):
            return False
        self.app.assignor.counters["follow_ups"] += 1
        logger.info(
            "Asked for a follow-up round after generation %d: %d standbys have caught up, their "
            "tasks can move here warm%s",
            awaited.generation,
            len(done),
            f"; {len(late)} took too long and are given up" if late else "",
        )
        return True


async def ends_of(app: Any, tps: Sequence[TP]) -> dict[TP, int]:
    """Where each of ``tps`` ends, as far as its broker answers in time."""
    return await _ask_of_each(app, _end_of, tps)


async def read_to(app: Any, ends: Mapping[TP, int]) -> dict[TP, int]:
    """The offset up to which each copy has been read; what is no record, before its end, is read as well."""
    tables = app.tables
    offsets = tables.recovery.standby_offsets
    read = {tp: 0 if (offset := offsets.get(tp)) is None else offset + 1 for tp in ends}
    positions = await _ask_of_each(
        app, _position_of, [tp for tp, end in ends.items() if read[tp] < end]
    )
    # What was fetched before them may wait here still; what waits of other partitions says nothing.
    waiting = {event.message.tp for event in tables.changelog_queue._queue} if positions else ()
    for tp, position in positions.items():
        if tp not in waiting:
            read[tp] = max(read[tp], position)
    return read


async def _ask_of_each(app: Any, ask: Ask, tps: Sequence[TP]) -> dict[TP, int]:
    """What the consumer says of each of ``tps`` in time, by a question on its thread.

    Not by call_thread(), which serves two questions at a time, and commits are among them.
    """
    if not tps:
        return {}
    thread = app.consumer._thread
    asked = asyncio.run_coroutine_threadsafe(_known(ask, thread._consumer, tps), thread.thread_loop)
    return await asyncio.wrap_future(asked)


async def _known(ask: Ask, consumer: Any, tps: Sequence[TP]) -> dict[TP, int]:
    """What is told in time of each of ``tps``, asked for by itself.

    aiokafka asks for the ends of all until all are there, and what is gone never is; nor has it a position.
    """
    asked = {tp: asyncio.ensure_future(ask(consumer, tp)) for tp in tps}
    _, late = await asyncio.wait(asked.values(), timeout=ASK_S)
    for task in late:
        task.cancel()
    told = await asyncio.gather(*asked.values(), return_exceptions=True)
    return {tp: answer for tp, answer in zip(asked, told, strict=True) if isinstance(answer, int)}


async def _end_of(consumer: Any, tp: TP) -> int | None:
    return (await consumer.end_offsets([tp]))[tp]  # type: ignore[no-any-return]


async def _position_of(consumer: Any, tp: TP) -> int | None:
    return await consumer.position(tp)  # type: ignore[no-any-return]


async def _rejoin(app: Any, generation: int, read: Mapping[TP, int]) -> bool:
    """On the consumer's thread: leave ``generation`` for the next, unless that has happened.

    How far copies were ``read`` is noted here, where each answer is taken, so that it is of no other one. A
    follower's JoinGroup starts a round because its metadata names the generation of its claims, and so
    differs from what it said before.
    """
    coordinator = app.consumer._thread._consumer._coordinator
    if coordinator.generation != generation:
        return False
    app.assignor.read_to = read
    if coordinator._rejoin_needed_fut.done():
        return False
    coordinator.request_rejoin()
    return True


def install(app: Any) -> FollowUp | None:
    """Add the service to ``app``, to be called before that starts; None where the setting is 0."""
    cool_down_s = settings.read_or_default(app, FOLLOW_UP_S)
    present: FollowUp | None = getattr(app, MARK, None)
    if present is not None or cool_down_s == 0:
        return present
    warming = settings.read_or_default(app, WARMUPS)
    service = FollowUp(
        app,
        cool_down_s,
        deadline_s=settings.read_or_default(app, WARMUP_DEADLINE_S) if warming else None,
    )
    setattr(app, MARK, service)
    app._extra_services.append(service)
    return service

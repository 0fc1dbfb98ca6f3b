"""Computes a group's recommendations for all callers from shared queries of the group."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Final

from faust_assigner.clients.groups import GroupNotFound
from faust_assigner.errors import TryAgain
from faust_assigner.pipeline.failure import verdict
from faust_assigner.scaler.case import HOLD, Recommendation
from faust_assigner.scaler.look import Look, look_of
from faust_assigner.scaler.memory import Memory
from faust_assigner.scaler.recommend import recommend
from faust_assigner.scaler.settings import Settings
from faust_assigner.status.evidence import Evidence

log = logging.getLogger(__name__)

#: A query answers all calls within this many seconds.
FRESH_S: Final = 3.0
#: Seconds that a call waits for a query; the query continues after this time, for later calls.
WAIT_S: Final = 10.0
#: The maximum number of remembered ScaledObjects; above it, the least recent caller is forgotten.
MOST_ASKERS: Final = 64
#: The value of :attr:`_Asker.logged` after a warning that there is no recommendation.
_NOTHING: Final = ("", 0, True)


class NoRecommendation(TryAgain):
    """The group does not answer, and the last recommendation is too old or missing."""


@dataclass
class _Asker:
    """The memory of one ScaledObject, with its last answer and the answer's time."""

    memory: Memory = field(default_factory=Memory)
    seen: Look | None = None
    settings: Settings | None = None
    told: Recommendation | None = None
    told_at: float = 0.0
    #: The last logged answer: its decision, its size, and whether it repeats an earlier answer.
    logged: tuple[str, int, bool] | None = None


class Recommender:
    """Answers for one group. ``look`` queries the group; ``clock`` is monotonic, in seconds.

    Each ScaledObject has a separate memory, so different settings do not disturb each other.
    """

    def __init__(
        self, group_id: str, look: Callable[[], Awaitable[Evidence]], clock: Callable[[], float]
    ) -> None:
        self.group_id = group_id
        self._look, self._clock = look, clock
        self._askers: OrderedDict[str, _Asker] = OrderedDict()
        self._last: Look | None = None
        self._looked_at = 0.0
        self._looking: asyncio.Task[Look] | None = None

    async def recommendation(self, asker: str, settings: Settings) -> Recommendation:
        """Return the current recommendation. ``asker`` is the ScaledObject, ``namespace/name``.

        If the cluster does not know the group, ``min`` is 0 and no answer is newer than ``hold_s``,
        the size for a first worker is returned. Raises NoRecommendation if the group does not
        answer and the last answer is older than ``hold_s``. Waits for :data:`WAIT_S` at most.
        """
        one = self._asker(asker)
        try:
            look = await self._shared_look()
        except Exception as error:
            said = verdict(error)
            if said is None:
                raise
            if (
                isinstance(error, GroupNotFound)
                and settings.least == 0
                and not self._has_recent_answer(one, settings)
            ):
                return self._first_worker(asker, one, settings, said[0])
            return self._repeated(asker, one, settings, said[0])
        if look is not one.seen or settings != one.settings or one.told is None:
            one.told, one.memory = recommend(look, settings, one.memory)
            one.seen, one.settings, one.told_at = look, settings, self._clock()
            self._log(asker, one, one.told, is_repeated=False)
        return one.told

    async def close(self) -> None:
        """Cancel a running query."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    def _asker(self, name: str) -> _Asker:
        one = self._askers.setdefault(name, _Asker())
        self._askers.move_to_end(name)
        while len(self._askers) > MOST_ASKERS:
            self._askers.popitem(last=False)
        return one

    async def _shared_look(self) -> Look:
        """Return the last query while fresh, else a new query that all callers share."""
        if self._last is not None and self._clock() - self._looked_at < FRESH_S:
            return self._last
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._new_look(), name="scaler-look")
            # Retrieve the error of a query that no caller awaits; otherwise asyncio would log the
            # error.
            self._looking.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            async with asyncio.timeout(WAIT_S):
                return await asyncio.shield(self._looking)
        except TimeoutError:
            raise TryAgain(f"the group did not answer within {WAIT_S:g} s") from None

    async def _new_look(self) -> Look:
        look = look_of(await self._look())
        self._last, self._looked_at = look, self._clock()
        return look

    def _has_recent_answer(self, one: _Asker, settings: Settings) -> bool:
        """Return whether there is a last answer that is at most ``hold_s`` old."""
        return one.told is not None and self._clock() - one.told_at <= settings.hold_s

    def _first_worker(
        self, asker: str, one: _Asker, settings: Settings, why: str
    ) -> Recommendation:
        """Start the workers of a group that was scaled to zero and that the cluster has forgotten.

        Kafka forgets a group without members when its offsets expire, after a week by default. Only
        a worker makes the group and its topics known again.
        """
        size = 1 + one.memory.standbys
        if settings.most is not None:
            size = min(size, settings.most)
        one.memory = replace(one.memory, size=size, changed_at=self._clock())
        found = Recommendation(size=size, present=0, decision=HOLD, reasons=(why,))
        self._log(asker, one, found, is_repeated=False)
        return found

    def _repeated(self, asker: str, one: _Asker, settings: Settings, why: str) -> Recommendation:
        """Return the last answer if it is at most ``hold_s`` old. Raises NoRecommendation."""
        age_s = self._clock() - one.told_at
        if one.told is None or not self._has_recent_answer(one, settings):
            told = "none was given yet" if one.told is None else f"the last is {age_s:.0f} s old"
            missing = f"no recommendation for {self.group_id}: {why} ({told})"
            if one.logged != _NOTHING:
                one.logged = _NOTHING
                log.warning("%s: %s", asker, missing)
            raise NoRecommendation(missing)
        reason = f"the group does not answer: {why}; repeating the answer of {age_s:.0f} s ago"
        found = replace(one.told, decision=HOLD, reasons=(reason,))
        self._log(asker, one, found, is_repeated=True)
        return found

    def _log(self, asker: str, one: _Asker, found: Recommendation, *, is_repeated: bool) -> None:
        """Log an answer that differs from the last logged answer."""
        now = found.decision, found.size, is_repeated
        if now != one.logged:
            one.logged = now
            log.info(
                "%s: group %s, %d workers (%s, now %d): %s",
                asker,
                self.group_id,
                found.size,
                found.decision,
                found.present,
                "; ".join(found.reasons),
            )

"""Takes the consumers' answers about hand-offs: checks the caller, and returns a revision.

Revisions are on the scale of epochs: the store's revision plus the base of epochs. A message with
the returned revision or a later one describes a state that contains the answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from faust_assigner.service import values as codec
from faust_assigner.service.clock import Clock
from faust_assigner.service.errors import BadRequest
from faust_assigner.service.handoff import HandoffEvent, State, TopicPartition, state_of
from faust_assigner.service.keys import one_line
from faust_assigner.service.mirror import Mirror
from faust_assigner.service.serving.answering import Answering, Decide, handoff_after
from faust_assigner.service.serving.callers import Callers

#: Minimum seconds between two stored progress reports of one consumer on one partition.
PROGRESS_EVERY_S = 5.0
#: Maximum number of characters of a stored reason.
MOST_SAID = 500
NO_REASON = "no reason given"


@dataclass(frozen=True)
class Answer:
    """The sender of an answer, and the hand-off that the answer is about.

    ``handoff_id`` the hand-off's id; None from clients of the first Kafka Assigner
    ``identity``   the authenticated name of the caller
    """

    consumer: str
    at: TopicPartition
    handoff_id: int | None = None
    identity: str = ""
    incarnation: str = ""


@dataclass(eq=False, repr=False)
class Acks:
    """Records the consumers' answers to hand-offs; any instance may do so.

    Every method raises :class:`ServiceRefused` for a refused answer, and ``StoreError`` if the
    store does not answer.
    """

    clock: Clock
    mirror: Mirror
    callers: Callers
    answering: Answering
    #: (partition, consumer) -> (time of the last stored report, its revision)
    _reported: dict[tuple[TopicPartition, str], tuple[float, int]] = field(
        default_factory=dict, init=False
    )
    _tidied_at: float = field(default=-float("inf"), init=False)

    async def ready(self, answer: Answer) -> int:
        """Record that the new owner is warm; return a revision that contains the answer."""
        return await self._answer(answer, HandoffEvent.WARM)

    async def released(self, answer: Answer, offset: int | None = None) -> int:
        """Record that the old owner released the partition; return what :meth:`ready` returns.

        In strict mode the old owner has drained, and ``offset`` is the next offset to process.
        """
        return await self._answer(answer, HandoffEvent.LET_GO, offset=offset)

    async def release_failed(self, answer: Answer, reason: str, epoch: int | None = None) -> int:
        """Record that the old owner cannot release the partition; return what :meth:`ready` returns.

        In strict mode the leader expels the old owner at once. ``epoch``: the epoch of the old
        owner's grant, if known.
        """
        return await self._answer(answer, HandoffEvent.CANNOT, reason=reason, epoch=epoch)

    async def warm_failed(self, answer: Answer, reason: str) -> int:
        """Record that the new owner cannot warm the partition; return what :meth:`ready` returns.

        The leader chooses a different consumer during the cool-down.
        """
        return await self._answer(answer, HandoffEvent.GAVE_UP, reason=reason)

    async def abort(self, at: TopicPartition, handoff_id: int | None) -> int:
        """Abort the hand-off by an operator's order; return what :meth:`ready` returns.

        During the cool-down, the leader does not choose the same new owner again.
        """
        event = HandoffEvent.GAVE_UP
        revision = await self.answering.take(
            None,
            at,
            handoff_id,
            event,
            lambda h: handoff_after(h, event, reason="ended by an operator"),
        )
        return self.mirror.view.base + revision

    async def progress(self, answer: Answer, fraction: float) -> int:
        """Store the warm-up's progress, 0 to 1, at most every :data:`PROGRESS_EVERY_S` seconds.

        Return a revision that contains the newest stored report.
        """
        async with self.callers.handle_request(
            answer.consumer, answer.identity, answer.incarnation
        ):
            revision = await self._progressed(answer, fraction)
            return self.mirror.view.base + revision

    async def _progressed(self, answer: Answer, fraction: float) -> int:
        now, reporter = self.clock.monotonic(), (answer.at, answer.consumer)
        when, revision = self._reported.get(reporter, (-float("inf"), 0))
        if now - when < PROGRESS_EVERY_S:
            return revision
        stored = min(max(0.0, fraction), 1.0)  # in this order, NaN becomes 0
        revision = await self._taken(
            answer,
            HandoffEvent.WARM,
            lambda h: replace(h, progress=stored) if state_of(h) is State.WARMING else None,
        )
        # Note only accepted reports, so that reports on invented partitions do not fill the memory.
        self._reported[reporter] = now, revision
        if now - self._tidied_at >= PROGRESS_EVERY_S:
            self._tidied_at = now
            self._reported = {
                pair: one for pair, one in self._reported.items() if now - one[0] < PROGRESS_EVERY_S
            }
        return revision

    async def _answer(
        self,
        answer: Answer,
        event: HandoffEvent,
        *,
        offset: int | None = None,
        reason: str = "",
        epoch: int | None = None,
    ) -> int:
        """Check the caller and the values, and write the answer; return a revision (see module)."""
        async with self.callers.handle_request(
            answer.consumer, answer.identity, answer.incarnation
        ):
            if offset is not None and not 0 <= offset <= codec.MAX_OFFSET:
                raise BadRequest(f"{answer.at}: an offset is 0 to {codec.MAX_OFFSET}, got {offset}")
            if epoch is not None:
                await self.answering.check_grant(answer.at, epoch - self.mirror.view.base)
            why = one_line(reason, MOST_SAID) or NO_REASON
            revision = await self._taken(
                answer, event, lambda h: handoff_after(h, event, offset=offset, reason=why)
            )
            return self.mirror.view.base + revision

    async def _taken(self, answer: Answer, event: HandoffEvent, decide: Decide) -> int:
        process = (answer.consumer, answer.incarnation)
        return await self.answering.take(process, answer.at, answer.handoff_id, event, decide)

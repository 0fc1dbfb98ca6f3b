"""Reports of rounds to the app, its sensors and its tracer: the start, the answer and the end.

Faust calls a round a rebalance. ``app.rebalancing`` is true from the start to the end, and sensors
get ``on_rebalance_start``, ``on_rebalance_return`` and ``on_rebalance_end``. Kept partitions are
processed throughout a cooperative round.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mode import get_logger

if TYPE_CHECKING:
    from faust.types.app import AppT

logger = get_logger(__name__)


class Rounds:
    """Reports one start, one answer and one end of each round to ``app``, on the app's thread.

    The second round of a hand-over may start before the recovery of the first round is over. Then
    the end of the first round is reported before this start. Otherwise Faust would lose the first
    round's sensor state, and gauges of current rounds would never decrease again.
    """

    def __init__(self, app: AppT) -> None:
        self.app = app
        #: Whether a round has started and its answer has not been reported to the app yet.
        self.is_unanswered = False
        #: Whether all partitions were restored before the answer was reported.
        self._is_restored = False

    def begin(self) -> None:
        """Report the start of a cooperative round; the member's partitions are still processed."""
        self.end()
        self.is_unanswered = True
        self.app.on_rebalance_start()

    def give_up(self) -> None:
        """Report the end of the current round, because Faust starts an eager round next."""
        self.end()
        self.is_unanswered = True

    @contextmanager
    def reporting_answer(self) -> Iterator[None]:
        """Wrap Faust's report of an eager round's answer; end the round after the report."""
        self.is_unanswered, self._is_restored = True, False
        yield
        self.is_unanswered = False
        if self._is_restored:
            self._ready()

    def answered(self) -> None:
        """Report the answer: the app has its assignment, but gained partitions are not restored."""
        if self.is_unanswered:
            self.is_unanswered = False
            self.app.on_rebalance_return()

    def restored(self) -> None:
        """Note that all owned partitions are restored; end the round if its answer was reported.

        Otherwise the round continues: the restored partitions belong to the previous round, or
        Faust is about to report the answer (see :meth:`reporting_answer`).
        """
        self._is_restored = True
        if not self.is_unanswered:
            self._ready()

    def _ready(self) -> None:
        if self.end():
            logger.info("Worker ready")

    def end(self) -> bool:
        """Report the end of the current round; return False without a current round."""
        if not self.app.rebalancing:
            return False
        self.answered()
        self.app.on_rebalance_end()
        self.subscribe_new_topics()
        return True

    def subscribe_new_topics(self) -> None:
        """Wake Faust's conductor, which ignores topics that are added during a rebalance."""
        topics = self.app.topics
        wanted = {name for channel in list(topics) for name in channel.topics}
        if not wanted <= topics._topic_name_index.keys():
            topics.discard(None)  # removes nothing, and wakes the conductor

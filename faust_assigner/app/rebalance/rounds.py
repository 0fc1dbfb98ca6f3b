"""A cooperative round as the app, its sensors and its tracer see it: begun, answered, ended.

Faust calls a round a rebalance: ``app.rebalancing`` is true from the beginning to the end, and
sensors get ``on_rebalance_start``, ``on_rebalance_return`` and ``on_rebalance_end``. Kept
partitions are processed throughout the round.
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
    """Reports one beginning, one answer and one end of each round to ``app``, on the app's thread.

    The second round of a hand-over begins before the first round has ended. Then the first round is
    ended before the second begins. Otherwise Faust would forget the first round's sensor state, and
    gauges of rounds under way would never go down again.
    """

    def __init__(self, app: AppT) -> None:
        self.app = app
        #: Whether a round has begun and the app does not know its answer yet.
        self.is_unanswered = False
        #: Whether all partitions were restored before Faust reported the answer to the app.
        self._is_restored = False

    def begin(self) -> None:
        """Report that this member joins a round; its partitions are still processed."""
        self.end()
        self.is_unanswered = True
        self.app.on_rebalance_start()

    def give_up(self) -> None:
        """End the round under way without a result, because Faust begins an eager round next."""
        self.end()
        self.is_unanswered = True

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Wrap the block in which Faust reports an eager round's answer; the round may end then."""
        self.is_unanswered, self._is_restored = True, False
        yield
        self.is_unanswered = False
        if self._is_restored:
            self._ready()

    def answered(self) -> None:
        """Report the answer: the app knows its partitions, but has not restored the gained ones."""
        if self.is_unanswered:
            self.is_unanswered = False
            self.app.on_rebalance_return()

    def restored(self) -> None:
        """Note that all owned partitions are restored, which ends an answered round.

        An unanswered round goes on. Then the restored partitions belong to the previous round, or
        Faust is about to report the answer (see :meth:`answering`).
        """
        self._is_restored = True
        if not self.is_unanswered:
            self._ready()

    def _ready(self) -> None:
        if self.end():
            logger.info("Worker ready")

    def end(self) -> bool:
        """End the round under way, if any; return whether there was one."""
        if not self.app.rebalancing:
            return False
        self.answered()
        self.app.on_rebalance_end()
        self.subscribe_what_came_meanwhile()
        return True

    def subscribe_what_came_meanwhile(self) -> None:
        """Wake Faust's conductor, which ignores topics that are added during a rebalance."""
        topics = self.app.topics
        changed = getattr(topics, "_subscription_changed", None)
        if changed is None:
            return
        wanted = {name for channel in list(topics) for name in channel.topics}
        if not wanted <= topics._topic_name_index.keys():
            changed.set()

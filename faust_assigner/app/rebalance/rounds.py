"""A cooperative round as the app, its sensors and its tracer see it: begun, answered, ended.

Faust calls it a rebalance: ``app.rebalancing`` is true from the beginning to the end, and sensors get
``on_rebalance_start``, ``on_rebalance_return`` and ``on_rebalance_end``. Kept partitions flow all the while.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mode import get_logger

logger = get_logger(__name__)


class Rounds:
    """Tells ``app`` of each round exactly one beginning, one answer and one end; on the app's thread.

    A round that begins before the former has ended, as the second round of a hand-over does, ends the former
    first: Faust forgets the former's sensor state, and gauges of rounds under way never come down again.
    """

    def __init__(self, app: Any) -> None:
        self.app = app
        #: Whether a round has begun whose answer the app does not know yet.
        self.is_unanswered = False
        #: Whether all was restored before Faust told the app of its answer.
        self._is_restored = False

    def begin(self) -> None:
        """This member joins a round; what it owns flows on."""
        self.end()
        self.is_unanswered = True
        self.app.on_rebalance_start()

    def give_up(self) -> None:
        """Faust begins an eager round next: the one under way comes to nothing."""
        self.end()
        self.is_unanswered = True

    @contextmanager
    def answering(self) -> Iterator[None]:
        """At the end of the block Faust tells the app of an eager round's answer; the end comes then."""
        self.is_unanswered, self._is_restored = True, False
        yield
        self.is_unanswered = False
        if self._is_restored:
            self._ready()

    def answered(self) -> None:
        """The app knows what it has by now; what it gained is not restored yet."""
        if self.is_unanswered:
            self.is_unanswered = False
            self.app.on_rebalance_return()

    def restored(self) -> None:
        """All that is owned is restored: a round that is answered ends with it.

        One that is not goes on. What was restored belongs to the round before, or Faust is about to answer,
        see :meth:`answering`.
        """
        self._is_restored = self.is_unanswered
        if not self.is_unanswered:
            self._ready()

    def _ready(self) -> None:
        if self.end():
            logger.info("Worker ready")

    def end(self) -> bool:
        """The round is over, or the next one begins; returns whether a round was under way."""
        if not self.app.rebalancing:
            return False
        self.answered()
        self.app.on_rebalance_end()
        self._subscribe_what_came_meanwhile()
        return True

    def _subscribe_what_came_meanwhile(self) -> None:
        """Have Faust's conductor look again: it passes over topics that are added during a rebalance."""
        topics = self.app.topics
        changed = getattr(topics, "_subscription_changed", None)
        if changed is None:
            return
        wanted = {name for channel in list(topics) for name in channel.topics}
        if not wanted <= topics._topic_name_index.keys():
            changed.set()

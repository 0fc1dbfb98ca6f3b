"""A cooperative round as the app, its sensors and its tracer see it: begun, answered, ended.

Faust calls it a rebalance: ``app.rebalancing`` is true from the beginning to the end, and sensors get
``on_rebalance_start``, ``on_rebalance_return`` and ``on_rebalance_end``. Kept partitions flow all the while.
"""

from __future__ import annotations

from typing import Any


class Rounds:
    """Tells ``app`` of each round exactly one beginning, one answer and one end; on the app's thread.

    A round that begins before the former has ended, as the second round of a hand-over does, ends the former
    first: Faust forgets the former's sensor state, and gauges of rounds under way never come down again.
    """

    def __init__(self, app: Any) -> None:
        self.app = app
        #: Whether a cooperative round has begun whose answer the app does not know yet.
        self.is_unanswered = False

    def begin(self) -> None:
        """This member joins a round; what it owns flows on."""
        self.end()
        self.is_unanswered = True
        self.app.on_rebalance_start()

    def answered(self) -> None:
        """The app knows what it has by now; what it gained is not restored yet."""
        if self.is_unanswered:
            self.is_unanswered = False
            self.app.on_rebalance_return()

    def restored(self) -> bool:
        """All that is owned is restored; returns whether that ended a round.

        It ends no round that is not answered yet: what was restored belongs to the round before.
        """
        return not self.is_unanswered and self.end()

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

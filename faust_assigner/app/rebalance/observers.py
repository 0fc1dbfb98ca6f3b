"""Observers of the leader's decisions; a separate thread calls them, to delay no decision."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from mode import get_logger

from faust_assigner.model import Member
from faust_assigner.planner import Plan
from faust_assigner.warmup import WarmupPolicy
from faust_assigner.wire.directory import Directory

logger = get_logger(__name__)

#: The maximum number of decisions that wait for observers; further decisions are dropped and
#: counted.
MOST_WAITING = 8


@dataclass(frozen=True)
class DecisionInputs:
    """The inputs of a decision; ``plan()`` with these inputs returns the same plan again.

    - ``generation``: the generation being formed.
    - ``refused``: member -> reason, for members with refused metadata.
    - ``software``: member -> its version of this package; "" for stock Faust.
    - ``weightless``: topics that count as no load.
    - ``warmups``: the warm-up policy; None if warm-ups are off.
    - ``joined``, ``left``: the URLs of members that joined or left after the leader's own last
      assignment.
    - ``trigger``: the change since the leader's last decision, such as "join".
    - ``urls``: member -> URL, for all members including the leaving ones.
    - ``leaving``: the members that give their partitions away; ``members`` does not contain them.
    - ``follows``: whether a second round follows at once.
    - ``completes``: the trigger of the round that this round completes; else "".
    - ``last``, ``last_generation``: the previous round's directory of owners and its generation, if
      a different member led that round.
    """

    group_id: str
    generation: int
    members: tuple[Member, ...]
    partitions: Mapping[str, int]
    replicas: int
    changelogs: frozenset[str]
    weights: Any = None
    previous_ids: Mapping[str, int] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    software: Mapping[str, str] = field(default_factory=dict)
    solve_ms: float = 0.0
    weightless: frozenset[str] = frozenset()
    warmups: WarmupPolicy | None = None
    joined: frozenset[str] = frozenset()
    left: frozenset[str] = frozenset()
    trigger: str = ""
    urls: Mapping[str, str] = field(default_factory=dict)
    leaving: frozenset[str] = frozenset()
    follows: bool = False
    completes: str = ""
    last: Directory = field(default_factory=Directory)
    last_generation: int = -1


Observer: TypeAlias = Callable[[DecisionInputs, Plan], object]


class Decisions:
    """The observers of one assignor; counts ``dropped`` decisions and ``failed`` calls."""

    def __init__(self) -> None:
        self._observers: list[Observer] = []
        self._waiting: queue.Queue[tuple[DecisionInputs, Plan]] = queue.Queue(MOST_WAITING)
        self._telling = threading.Lock()
        self._thread: threading.Thread | None = None
        self.dropped = 0
        self.failed = 0

    def connect(self, observer: Observer) -> Observer:
        """Call ``observer(inputs, plan)`` after each decision; usable as a decorator."""
        self._observers.append(observer)
        return observer

    def tell(self, inputs: DecisionInputs, plan: Plan) -> None:
        """Queue a decision for the observers, without a wait."""
        if not self._observers:
            return
        try:
            self._waiting.put_nowait((inputs, plan))
        except queue.Full:
            self.dropped += 1
            return
        with self._telling:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="assignor-decisions", daemon=True
                )
                self._thread.start()

    def join(self) -> None:
        """Wait until the observers were called with every queued decision."""
        self._waiting.join()

    def _next(self) -> tuple[DecisionInputs, Plan] | None:
        """Return the next queued decision; without one, return None, which ends the thread."""
        with self._telling:
            try:
                return self._waiting.get_nowait()
            except queue.Empty:
                self._thread = None
                return None

    def _run(self) -> None:
        while decision := self._next():
            inputs, plan = decision
            for observer in tuple(self._observers):
                try:
                    observer(inputs, plan)
                except Exception:
                    self.failed += 1
                    logger.exception("An observer of assignment decisions failed: %r", observer)
            self._waiting.task_done()

"""Who wants to know of decisions is told on a thread of its own: never able to fail or to slow one."""

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

#: Decisions that may wait for slow observers; more are dropped and counted.
MOST_WAITING = 8


@dataclass(frozen=True)
class DecisionInputs:
    """What a decision was made from; ``plan(members, partitions, ...)`` gives the same plan again.

    ``generation`` is the one being formed. ``refused`` maps members whose metadata could not be taken
    to the reason; ``software`` maps members to their version of this package ("" for stock Faust).
    ``weightless`` topics are assigned and count in no load; ``warmups`` is how work waits for state.
    ``joined`` and ``left`` are the URLs of members that are new, and gone, since the leader's own last
    assignment; ``trigger`` is what changed since its last decision. ``urls`` are of all members, those
    included that are ``leaving``, which give away what they have and get nothing. ``follows``: a second
    round follows at once; ``completes`` is the trigger of the round that this one completes, else "".
    ``last`` and ``last_generation``: the round before as its leader told it, where that was another member.
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
    """The observers of one assignor. ``dropped`` and ``failed`` count what they missed and raised."""

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
        """Hand a decision over; returns at once."""
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
        """Wait until every decision handed over has been told."""
        self._waiting.join()

    def _next(self) -> tuple[DecisionInputs, Plan] | None:
        """A decision to tell; None where there is none: the thread ends then, and keeps nothing alive."""
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

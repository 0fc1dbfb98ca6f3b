"""An instance's record of hand-offs: when each began, and the results of each new owner.

Every instance keeps a record from the store's events, so that the next leader has one already. An
instance that has just started counts the time of each hand-off from its own start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from faust_assigner.service.handoff import Handoff, Phase, State, TopicPartition, state_of
from faust_assigner.service.view import Change, Entry, View
from faust_assigner.settings.service import ServiceSettings

#: A *place* is one permitted concurrent hand-off. Of this many places, one is kept for the
#: hand-offs of leaving consumers.
KEPT = 4
#: A consumer's failure counts for ``cooldown_s``. Each further failure doubles this time, at most
#: this many times.
MOST_DOUBLED = 6
#: A new owner without progress counts as stuck after this share of the hand-off timeout.
PATIENCE = 0.1


#: The states whose time limit counts from their own beginning. In all other states the limit counts
#: from the beginning of the hand-off.
TIMED_ANEW = frozenset({State.RELEASING, State.EXPELLED})


def most_s(state: State, settings: ServiceSettings) -> float:
    """Return the state's time limit in seconds: ``release_timeout_s`` or ``handoff_timeout_s``."""
    return settings.release_timeout_s if state in TIMED_ANEW else settings.handoff_timeout_s


class Seen(NamedTuple):
    """The times at which this instance first saw a hand-off.

    ``created``  the hand-off's id
    ``state``    the hand-off's last seen state
    ``began``    when this instance first saw the hand-off
    ``since``    when this instance first saw the hand-off in this state

    ``Handoff.started_at`` is not used: it is from the wall clock of the leader that began the
    hand-off. If the two machines' clocks differed, hand-offs would end too early or never.
    """

    created: int
    state: State
    began: float
    since: float

    def over_at(self, settings: ServiceSettings) -> float:
        """Return the monotonic time at which the hand-off's time limit is over."""
        return (self.since if self.state in TIMED_ANEW else self.began) + most_s(
            self.state, settings
        )


@dataclass
class _Trial:
    """The results of one process as a new owner.

    ``failed``     the number of failures since the process last got a partition ready
    ``failed_at``  the time of the last failure
    ``ready_at``   the time when the process last got a partition ready
    """

    incarnation: str
    failed: int = 0
    failed_at: float = -float("inf")
    ready_at: float = -float("inf")


@dataclass(frozen=True)
class Suitability:
    """The consumers' suitability as new owners, at one moment.

    ``stuck``      consumers that failed, until their cool-down is over, which grows with each
                   failure; or that have long been warming without any progress
    ``overtaken``  stuck consumers with a hand-off that began before the newest hand-off that
                   became ready
    ``crowding``   the consumers that are not proven, if together they hold all places except the
                   places kept for leaving consumers
    ``proven``     consumers that got a partition ready, or own partitions, and are not stuck
    """

    stuck: frozenset[str] = frozenset()
    overtaken: frozenset[str] = frozenset()
    crowding: frozenset[str] = frozenset()
    proven: frozenset[str] = frozenset()


NEUTRAL = Suitability()


def unreserved_places(places: int) -> int:
    """Return the number of places for all moves, without the places kept for leaving consumers."""
    return places - max(1, places // KEPT) if places > 1 else places


class Record:
    """The record of all hand-offs in progress and all registered consumers.

    Times are in seconds of a monotonic clock.
    """

    def __init__(self, settings: ServiceSettings) -> None:
        self._settings = settings
        self._seen: dict[TopicPartition, Seen] = {}
        self._trials: dict[str, _Trial] = {}
        self._newest_ready = -float("inf")
        self._patience_s = PATIENCE * settings.handoff_timeout_s

    def on_changes(self, view: View, change: Change, now: float) -> None:
        """Record a change that the view has already applied."""
        if change.kind == "handoffs":
            if change.after is not None:
                self._look(view, change.name, change.after, now)
            elif (
                seen := self._seen.pop(change.name, None)
            ) is not None and change.before is not None:
                self._note_withdrawn(view, change.before.value, seen, now)
        elif change.kind == "cooldowns" and change.after is not None:
            # The leader writes a cool-down only after a failure of the new owner.
            self._failed(view, change.name[1], now)
        elif change.kind == "consumers":
            trial = self._trials.get(change.name)
            if trial is not None and not view.is_registered(change.name, trial.incarnation):
                del self._trials[change.name]

    def _note_withdrawn(self, view: View, handoff: Handoff, seen: Seen, now: float) -> None:
        """Count a failure if the new owner of a withdrawn hand-off long reported no progress.

        The new owner then counts as stuck even after the end of the hand-off.
        """
        waited_s = now - seen.began
        is_silent = state_of(handoff) is State.WARMING and handoff.progress == 0
        is_silent &= view.is_registered(*handoff.new_process)
        if is_silent and self._patience_s <= waited_s < self._settings.handoff_timeout_s:
            self._failed(view, handoff.new_owner, now)

    def _failed(self, view: View, name: str, now: float) -> None:
        if name in view.consumers:
            trial = self._trial(view, name)
            trial.failed, trial.failed_at = trial.failed + 1, now

    def _look(self, view: View, at: TopicPartition, entry: Entry[Handoff], now: float) -> None:
        created, state = entry.kv.create_revision, state_of(entry.value)
        seen = self._seen.get(at)
        if seen is None or seen.created != created:
            self._seen[at] = Seen(created, state, now, now)
        elif seen.state is not state:
            is_ready = seen.state is State.WARMING and state is not State.FAILED
            # The answer may come after the end of its process, whose trial was then deleted.
            if is_ready and view.is_registered(*entry.value.new_process):
                trial = self._trial(view, entry.value.new_owner)
                trial.failed, trial.ready_at = 0, now
                self._newest_ready = max(self._newest_ready, seen.began)
            self._seen[at] = seen._replace(state=state, since=now)

    def _trial(self, view: View, name: str) -> _Trial:
        return self._trials.setdefault(name, _Trial(view.incarnation(name)))

    def late(self, now: float) -> set[TopicPartition]:
        """Return the hand-offs whose time is over."""
        return {at for at, seen in self._seen.items() if now >= seen.over_at(self._settings)}

    def next_over_at(self) -> float:
        """Return the earliest end of a hand-off's time limit; infinite without hand-offs."""
        return min(
            (seen.over_at(self._settings) for seen in self._seen.values()), default=float("inf")
        )

    def age_s(self, at: TopicPartition, now: float) -> float:
        """Return the seconds since this instance first saw the hand-off, 0 if unknown."""
        seen = self._seen.get(at)
        return 0.0 if seen is None else now - seen.began

    def standing(self, view: View, now: float) -> Suitability:
        """Compute the suitability of all consumers. Cost: one pass over hand-offs and consumers."""
        oldest = dict(self._silent(view))
        waited = {
            name
            for name, began in oldest.items()
            if began <= now - self._patience_s and self._ready_at(name) < began
        }
        stuck = waited | {n for n, trial in self._trials.items() if self._fails(trial, now)}
        proven = {name for name in view.consumers if self._is_proven(view, name)} - stuck
        held = Counter(
            entry.value.new_owner
            for entry in view.handoffs.values()
            if entry.value.phase is not Phase.COMPLETE and entry.value.new_owner not in proven
        )
        is_crowded = held.total() >= unreserved_places(self._settings.max_handoffs)
        return Suitability(
            stuck=frozenset(stuck),
            overtaken=frozenset(n for n in stuck if oldest.get(n, now) < self._newest_ready),
            crowding=frozenset(held if is_crowded else ()),
            proven=frozenset(proven),
        )

    def _is_proven(self, view: View, name: str) -> bool:
        mine = view.incarnation(name)
        return self._ready_at(name) > -float("inf") or any(
            view.assignments[at].value.incarnation == mine for at in view.owned.get(name, ())
        )

    def _fails(self, trial: _Trial, now: float) -> bool:
        times = 2.0 ** min(trial.failed - 1, MOST_DOUBLED)
        return trial.failed > 0 and now < trial.failed_at + self._settings.cooldown_s * times

    def _ready_at(self, name: str) -> float:
        trial = self._trials.get(name)
        return -float("inf") if trial is None else trial.ready_at

    def _silent(self, view: View) -> Iterator[tuple[str, float]]:
        """Yield each warming consumer without progress, and when its oldest hand-off began."""
        found: dict[str, float] = {}
        heard: set[str] = set()
        for at, entry in view.handoffs.items():
            if state_of(entry.value) is State.WARMING and at in self._seen:
                name = entry.value.new_owner
                found[name] = min(found.get(name, float("inf")), self._seen[at].began)
                if entry.value.progress > 0:
                    heard.add(name)
        return ((name, began) for name, began in found.items() if name not in heard)

"""What an instance remembers of hand-offs: since when they are under way, and how each consumer did.

Every instance keeps this by what it hears of the store, leading or not, so that the next leader knows it too.
An instance that has just started gives each hand-off its whole time again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from faust_assigner.service.handoff import Handoff, Phase, State, TopicPartition, state_of
from faust_assigner.service.settings import ServiceSettings
from faust_assigner.service.view import Change, Entry, View

#: One of so many places for hand-offs is kept for consumers that leave.
KEPT = 4
#: A failure counts for as long as its cool-down; each further one doubles that, so many times at most.
MOST_DOUBLED = 6
#: Of the hand-off timeout: after it a consumer that shows no sign of getting ready is not counted on.
PATIENCE = 0.1


#: States whose time begins with them; the others' begins with the hand-off.
TIMED_ANEW = frozenset({State.RELEASING, State.EXPELLED})


def most_s(state: State, settings: ServiceSettings) -> float:
    """How long a hand-off may take. A release has its own time, however long the warm-up took."""
    return settings.release_timeout_s if state in TIMED_ANEW else settings.handoff_timeout_s


class Seen(NamedTuple):
    """When this instance saw a hand-off first, and first in its state; ``created`` is the hand-off's id.

    The date that a hand-off carries is the wall clock of the leader that began it, and is not used: an
    instance whose clock is wrong would end every hand-off, or none.
    """

    created: int
    state: State
    began: float
    since: float

    def over_at(self, settings: ServiceSettings) -> float:
        """When its time is over."""
        return (self.since if self.state in TIMED_ANEW else self.began) + most_s(
            self.state, settings
        )


@dataclass
class _Trial:
    """How hand-offs to one process went: ``failed`` since it got one ready, and when each was last."""

    incarnation: str
    failed: int = 0
    failed_at: float = -float("inf")
    ready_at: float = -float("inf")


@dataclass(frozen=True)
class Standing:
    """What the leader expects of consumers as new owners, at one moment.

    ``stuck``      their last hand-off failed, or they have warmed for long, reported no progress and got
                   nothing ready meanwhile
    ``overtaken``  those of ``stuck`` whose oldest hand-off is older than one that is ready elsewhere
    ``crowding``   they have not shown anything yet, and hold all places that are not kept for consumers that
                   leave
    ``proven``     they got a partition ready, or work on some, and are not stuck
    """

    stuck: frozenset[str] = frozenset()
    overtaken: frozenset[str] = frozenset()
    crowding: frozenset[str] = frozenset()
    proven: frozenset[str] = frozenset()


NEUTRAL = Standing()


def unreserved(places: int) -> int:
    """The places that are not kept; the only one is not."""
    return places - max(1, places // KEPT) if places > 1 else places


class Record:
    """Of all hand-offs under way and all registered consumers. Times in seconds of a monotonic clock."""

    def __init__(self, settings: ServiceSettings) -> None:
        self._settings = settings
        self._seen: dict[TopicPartition, Seen] = {}
        self._trials: dict[str, _Trial] = {}
        self._newest_ready = -float("inf")
        self._patience_s = PATIENCE * settings.handoff_timeout_s

    def heard(self, view: View, change: Change, now: float) -> None:
        """Take a change that the view has already."""
        if change.kind == "handoffs":
            if change.after is not None:
                self._look(view, change.name, change.after, now)
            elif (
                seen := self._seen.pop(change.name, None)
            ) is not None and change.before is not None:
                self._given_up(view, change.before.value, seen, now)
        elif change.kind == "cooldowns" and change.after is not None:
            # A cool-down is written where a new owner failed, and nowhere else.
            self._failed(view, change.name[1], now)
        elif change.kind == "consumers":
            trial = self._trials.get(change.name)
            if trial is not None and not view.is_registered(change.name, trial.incarnation):
                del self._trials[change.name]

    def _given_up(self, view: View, handoff: Handoff, seen: Seen, now: float) -> None:
        """A new owner that others were preferred to, because it showed nothing for long, is stuck still."""
        waited_s = now - seen.began
        is_silent = state_of(handoff) is State.WARMING and handoff.progress == 0
        is_silent &= view.is_registered(handoff.new_owner, handoff.new_incarnation)
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
            if seen.state is State.WARMING and state is not State.FAILED:
                trial = self._trial(view, entry.value.new_owner)
                trial.failed, trial.ready_at = 0, now
                self._newest_ready = max(self._newest_ready, seen.began)
            self._seen[at] = seen._replace(state=state, since=now)

    def _trial(self, view: View, name: str) -> _Trial:
        return self._trials.setdefault(name, _Trial(view.incarnation(name)))

    def late(self, now: float) -> set[TopicPartition]:
        """The hand-offs whose time is over."""
        return {at for at, seen in self._seen.items() if now >= seen.over_at(self._settings)}

    def next_over_at(self) -> float:
        """When the time of the next hand-off is over."""
        return min(
            (seen.over_at(self._settings) for seen in self._seen.values()), default=float("inf")
        )

    def age_s(self, at: TopicPartition, now: float) -> float:
        """For how long this instance has known the hand-off."""
        seen = self._seen.get(at)
        return 0.0 if seen is None else now - seen.began

    def standing(self, view: View, now: float) -> Standing:
        """As of now. Cost: a pass over the hand-offs and the consumers."""
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
        is_crowded = held.total() >= unreserved(self._settings.max_handoffs)
        return Standing(
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
        """Consumers that are warming and have reported no progress, with when their oldest hand-off began."""
        found: dict[str, float] = {}
        heard: set[str] = set()
        for at, entry in view.handoffs.items():
            if state_of(entry.value) is State.WARMING and at in self._seen:
                name = entry.value.new_owner
                found[name] = min(found.get(name, float("inf")), self._seen[at].began)
                if entry.value.progress > 0:
                    heard.add(name)
        return ((name, began) for name, began in found.items() if name not in heard)

"""The page's history of earlier queries: lags, rounds, and moves of tasks, within bounds. No I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from faust_assigner.page.tasks import Family
from faust_assigner.status.report import Decision, Report
from faust_assigner.status.words import names_of, why, with_member_names
from faust_assigner.wire.worker_status import RoundTold

#: A sample is kept for ``KEPT_S``; earlier samples are at least ``SAMPLE_S`` apart.
KEPT_S, SAMPLE_S = 3600.0, 5.0
MOST_ROUNDS, MOST_MOVES, MOST_NAMES = 200, 20_000, 20_000
#: A round with a time further from now is ignored, because it comes from a worker with a wrong
#: clock.
OLDEST_S: Final = 90 * 86_400.0


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A query's result in numbers; ``at`` is in seconds since 1970, ``lag`` in records, None if unknown."""

    at: float
    members: int
    ready: int
    lag: int | None
    behind: int
    standing: int
    is_settled: bool


@dataclass(frozen=True, kw_only=True)
class RoundSeen:
    """A round of the group. ``at`` is in seconds since 1970.

    ``seconds`` is the time until the slowest worker had restored its tables, as far as workers reported.
    """

    generation: int
    at: float
    reason: str
    leader: str | None
    members: int
    tasks: int
    moved: int
    cold: int
    off_target: int
    warming: int
    is_planned: bool
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class Move:
    """A move of a task from the member ``source`` to the member ``target``.

    A name is None if the task had no owner. ``rule`` is the planner's rule, "" if the round's
    leader did not report it.
    """

    key: str
    at: float
    generation: int | None
    source: str | None
    target: str | None
    was_warm: bool | None
    rule: str = ""


class History:
    """The samples, rounds and moves of all queries; the limits above bound its memory."""

    def __init__(self) -> None:
        self.samples: deque[Sample] = deque(maxlen=int(KEPT_S / SAMPLE_S) + 1)
        self._rounds: dict[int, RoundSeen] = {}
        #: (task, generation, target) -> the move; oldest first.
        self._moves: dict[tuple[str, int | None, str | None], Move] = {}
        self._owners: dict[str, str | None] = {}
        self._holders: dict[str, frozenset[str]] = {}
        #: The name of every member seen, by URL, so that a round can name members that have left.
        self.names: dict[str, str] = {}

    @property
    def rounds(self) -> tuple[RoundSeen, ...]:
        """The rounds by generation, oldest first."""
        return tuple(self._rounds[generation] for generation in sorted(self._rounds))

    def moves_of(self, keys: Iterable[str]) -> tuple[Move, ...]:
        """Return the moves of a task by any of its keys, newest first."""
        wanted = set(keys)
        found = [move for move in self._moves.values() if move.key in wanted]
        return tuple(sorted(found, key=lambda move: -move.at))

    def note(self, report: Report, families: Iterable[Family]) -> None:
        """Add a query: its sample, its members' names, its round, and moves since the last query."""
        self._note_sample(report)
        self._note_names(report)
        if report.decision is not None:
            self.note_round(
                round_of(with_member_names(report.decision, self.names), report.taken_at)
            )
        if report.is_settled:
            self._note_moves(report, families)

    def note_round(self, found: RoundSeen) -> None:
        """Add a round. A known round of this generation is replaced if it lacks the leader's name.

        The longest known duration of the round is kept.
        """
        known = self._rounds.get(found.generation)
        longest = max(
            (one.seconds for one in (known, found) if one is not None and one.seconds is not None),
            default=None,
        )
        best = found if known is None or known.leader is None else known
        self._rounds[found.generation] = replace(best, seconds=longest)
        while len(self._rounds) > MOST_ROUNDS:
            del self._rounds[min(self._rounds)]

    def note_reported(self, told: Iterable[RoundTold], report: Report) -> None:
        """Add rounds from workers; a leader's report of moves has priority over observed moves."""
        names = {one.member_id: one.name for one in report.members}
        tasks = {f"{p.topic}/{p.partition}" for p in report.partitions}
        # The leader's answer is noted last and replaces the others: it alone names the joined and departed.
        for one in sorted(told, key=lambda one: one.outcome is not None and one.outcome.leads):
            if one.outcome is None:
                continue
            at = float(one.outcome.decided_at) or one.at
            if abs(at - report.taken_at) > OLDEST_S:
                continue
            self.note_round(_round_from_worker(one, at, self.names))
            for moved in one.moves:
                key = f"{moved.topic}/{moved.partition}"
                if key in tasks:
                    self._note_move(
                        Move(
                            key=key,
                            at=at,
                            generation=one.generation,
                            source=names.get(moved.source, moved.source) or None,
                            target=names.get(moved.target, moved.target),
                            was_warm=not moved.is_cold,
                            rule=moved.rule,
                        )
                    )

    def _note_move(self, move: Move) -> None:
        """Add a move, or merge it with the known move of this task, generation and target.

        The leader's report has priority. The former owner comes from the queries if the leader did
        not report it.
        """
        place = move.key, move.generation, move.target
        known = self._moves.pop(place, None)
        if known is not None:
            best = move if move.rule else known
            other = known if best is move else move
            move = replace(best, source=best.source or other.source, at=min(move.at, known.at))
        self._moves[place] = move
        while len(self._moves) > MOST_MOVES:
            del self._moves[next(iter(self._moves))]

    def _note_names(self, report: Report) -> None:
        if len(self.names) > MOST_NAMES:
            self.names = {}
        self.names |= names_of(report)

    def _note_sample(self, report: Report) -> None:
        totals = report.totals
        sample = Sample(
            at=report.taken_at,
            members=totals.members,
            ready=totals.ready,
            lag=totals.lag if any(one.lag is not None for one in report.partitions) else None,
            behind=totals.standby_lag,
            standing=totals.standing_partitions,
            is_settled=report.is_settled,
        )
        # The newest query is always the last sample; earlier samples are at least SAMPLE_S apart.
        if len(self.samples) > 1 and sample.at - self.samples[-2].at < SAMPLE_S:
            self.samples.pop()
        self.samples.append(sample)
        while self.samples[0].at < sample.at - KEPT_S:
            self.samples.popleft()

    def _note_moves(self, report: Report, families: Iterable[Family]) -> None:
        generation = None if report.decision is None else report.decision.generation
        owners: dict[str, str | None] = {}
        holders: dict[str, frozenset[str]] = {}
        for family in families:
            for task in family.tasks:
                owners[task.key] = task.owner
                holders[task.key] = frozenset(task.copies)
                before = self._owners.get(task.key, task.owner)
                if before != task.owner and task.owner is not None:
                    warm = None
                    if task.is_stateful:
                        warm = task.owner in self._holders.get(task.key, frozenset())
                    self._note_move(
                        Move(
                            key=task.key,
                            at=report.taken_at,
                            generation=generation,
                            source=before,
                            target=task.owner,
                            was_warm=warm,
                        )
                    )
                elif task.owner is None:
                    owners[task.key] = before  # the source of the next move
        self._owners, self._holders = owners, holders


def _round_from_worker(told: RoundTold, at: float, names: Mapping[str, str]) -> RoundSeen:
    outcome = told.outcome
    assert outcome is not None
    decision = Decision(
        decision_id="",
        generation=told.generation,
        leader=(names.get(told.url.rstrip("/"), told.url) or None) if outcome.leads else None,
        at=int(at),
        **{
            name: value
            for name, value in vars(outcome).items()
            if name not in ("decided_at", "leads")
        },
    )
    return replace(round_of(with_member_names(decision, names), at), seconds=told.seconds)


def round_of(decision: Decision, seen_at: float) -> RoundSeen:
    """Convert a decision to a round. A decision without a time gets the time ``seen_at``."""
    return RoundSeen(
        generation=decision.generation,
        at=float(decision.at) if decision.at is not None else seen_at,
        reason=why(decision),
        leader=decision.leader,
        members=decision.members,
        tasks=decision.tasks,
        moved=decision.moved,
        cold=decision.cold,
        off_target=decision.off_target,
        warming=decision.warming,
        is_planned=decision.is_planned,
    )

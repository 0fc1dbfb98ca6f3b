"""A group's joins, restarts, crashes and departures, derived from its successive decisions.

* A static member (``instance_id``) is the same worker under each member id. A static member sends no
  LeaveGroup, so the group removes the member one session timeout after its stop. The diary therefore
  dates the stop one session timeout before the first decision without the member.
* A dynamic member was restarted if it is back within RETURN_S. The member returns under its own id or,
  since Kafka gives new ids, as a new member in the same rack. A member that does not return has left.
* A dynamic member crashed if its partitions lack samples for a session timeout while another member's
  partitions have samples. It also crashed if the decision's trigger contains one of CRASH_WORDS, which
  other writers of ledgers use. The crash, too, is dated one session timeout before the decision.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from faust_assigner.pipeline.rows import DecisionRow, MemberRow
from faust_assigner.simulation.fleet import Event, Kind, Worker

#: Seconds within which an absent dynamic member must return to count as restarted.
RETURN_S = 300.0
#: Assumed downtime, in seconds, of a static worker that rejoins before the group removes it.
BRIEF_S = 5.0
#: The share of the session timeout without samples that indicates a crash; below 1, because the last sample
#: precedes the crash.
SILENT_SHARE = 0.9
CRASH_WORDS = ("crash", "kill", "timeout", "expired", "lost", "dead", "fenced")

LastSeen = Mapping[tuple[str, str, str], dt.datetime]


@dataclass
class _Absence:
    """The absence of a worker: its start, whether it is a crash, and its length if the worker returned."""

    worker: str
    at_s: float
    crashed: bool
    down_s: float | None = None


@dataclass
class Diary:
    """The workers of a group and their events, derived from ``decisions``, which are in order of time.

    ``last_seen``: (group, decision, member) -> the time of the member's last sample before the next decision.
    ``workers``: all workers by name. ``start``: the names of the workers in the first decision.
    """

    decisions: Sequence[DecisionRow]
    last_seen: LastSeen = field(default_factory=dict)
    workers: dict[str, Worker] = field(default_factory=dict)
    start: tuple[str, ...] = ()
    absences: list[_Absence] = field(default_factory=list)
    joins: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        here: dict[str, str] = {}  # member id -> the worker with this member id
        static: set[str] = set()
        first = self.decisions[0]["ts"]
        for number, decision in enumerate(self.decisions):
            at = (decision["ts"] - first) / dt.timedelta(seconds=1)
            now = {member["member_id"]: member for member in decision["members"]}
            back = {name for member in now.values() if (name := member.get("instance_id"))}
            static |= back
            for gone in sorted(set(here) - set(now)):
                worker = here.pop(gone)
                if worker in back:
                    self.absences.append(_Absence(worker, max(0.0, at - BRIEF_S), False, BRIEF_S))
                else:
                    self.absences.append(self._absence(worker, gone, at, number, worker in static))
            still = set(here.values())
            for member_id in sorted(set(now) - set(here)):
                here[member_id] = self._arrives(
                    now[member_id], at, is_start=number == 0, still=still
                )
            if number == 0:
                self.start = tuple(sorted(here.values()))
        self.workers = {name: self.workers[name] for name in sorted(self.workers)}

    def _absence(
        self, worker: str, member_id: str, at: float, number: int, is_static: bool
    ) -> _Absence:
        decision = self.decisions[number]
        session_s = decision.get("session_timeout_s") or 0.0
        said = any(word in decision["trigger"].lower() for word in CRASH_WORDS)
        crashed = is_static or said or self._fell_silent(member_id, number, session_s)
        return _Absence(worker, max(0.0, at - session_s) if crashed else at, crashed)

    def _fell_silent(self, member_id: str, number: int, session_s: float) -> bool:
        """Return whether this member's partitions lack samples while another member's have samples."""
        before, now = self.decisions[number - 1], self.decisions[number]
        seen = {
            member["member_id"]: self.last_seen.get(
                (now["group_id"], before["decision_id"], member["member_id"]), before["ts"]
            )
            for member in before["members"]
        }
        silence = {name: (now["ts"] - at) / dt.timedelta(seconds=1) for name, at in seen.items()}
        others = [seconds for name, seconds in silence.items() if name != member_id]
        enough = SILENT_SHARE * session_s
        return bool(
            session_s and silence[member_id] >= enough and others and min(others) < enough / 2
        )

    def _arrives(self, member: MemberRow, at: float, *, is_start: bool, still: set[str]) -> str:
        rack, name = member["rack"], member.get("instance_id") or member["member_id"]
        if name in still:
            return str(name)
        if not is_start:
            back = [
                absence
                for absence in self.absences
                if absence.down_s is None and self._is_back(absence, member, name, at)
            ]
            if back:
                mine = min(
                    back, key=lambda absence: (absence.worker != name, absence.at_s, absence.worker)
                )
                mine.down_s = at - mine.at_s
                return mine.worker
        brief = any(absence.worker == name for absence in self.absences)
        self.workers.setdefault(name, Worker(name, rack, max(member["capacity"], 1e-9)))
        if not is_start and not brief:
            self.joins.append(Event(at, Kind.JOIN, name))
        return str(name)

    def _is_back(self, absence: _Absence, member: MemberRow, name: str, at: float) -> bool:
        if member.get("instance_id"):
            return absence.worker == name
        return at - absence.at_s <= RETURN_S and (
            absence.worker == name or self.workers[absence.worker].rack_id == member["rack"]
        )

    def events(self) -> tuple[Event, ...]:
        """Return all events in order of time; simultaneous events are sorted by worker."""
        events = list(self.joins)
        for absence in self.absences:
            if absence.down_s is None:
                kind = Kind.CRASH if absence.crashed else Kind.LEAVE
            else:
                kind = Kind.BOUNCE if absence.crashed else Kind.RESTART
            events.append(Event(absence.at_s, kind, absence.worker, absence.down_s or 0.0))
        return tuple(
            sorted(events, key=lambda event: (event.at_s, event.member_id, event.kind.value))
        )

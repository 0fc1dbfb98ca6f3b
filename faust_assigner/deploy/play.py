"""Simulates events with the leader's planner: workers stop, singly or together, or join. No I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from faust_assigner.deploy.fleet import Fleet, Moved, Worker, by_topic
from faust_assigner.errors import FaustAssignerError
from faust_assigner.status.evidence import Place
from faust_assigner.status.members import join_sorted
from faust_assigner.status.report import MemberReport
from faust_assigner.status.words import natural
from faust_assigner.wire.join import JoinData

STOP, ROLLING, LOSE_RACK, SCALE = "stop", "rolling", "lose rack", "scale"


class NoSuchWorker(FaustAssignerError, ValueError):
    """The given name matches no member, or several members."""

    exit_code = 2


@dataclass(frozen=True, kw_only=True)
class Question:
    """The event to try: ``workers`` stop, a ``rack`` is lost, or ``size`` workers run."""

    kind: str
    workers: tuple[str, ...] = ()
    rack: str = ""
    size: int = 0

    def __str__(self) -> str:
        return {
            STOP: f"stop {' and '.join(self.workers)}",
            ROLLING: "restart every worker, one after the other",
            LOSE_RACK: f"lose all workers of the rack {self.rack}",
            SCALE: f"run {self.size} workers",
        }[self.kind]


@dataclass(frozen=True, kw_only=True)
class Played:
    """A simulated event: the stopped members, the tasks that moved at once or later, and the new copies.

    ``is_for_good``: the stopped members do not return, not even static members.
    """

    event: str
    stopped: tuple[str, ...]
    is_crash: bool
    is_for_good: bool = False
    members: int = 0
    moved: tuple[Moved, ...] = ()
    later: tuple[Moved, ...] = ()
    #: Member's name -> its new changelog partitions.
    copied: Mapping[str, frozenset[Place]] = field(default_factory=dict)


def stopped_by(question: Question, members: Sequence[MemberReport]) -> frozenset[str]:
    """Return the names of the members that the event stops (a rolling restart stops one at a time)."""
    if question.kind == STOP:
        return frozenset(_find_member(name, members) for name in question.workers)
    if question.kind == ROLLING:
        return frozenset(member.name for member in members)
    if question.kind == LOSE_RACK:
        found = frozenset(member.name for member in members if member.rack == question.rack)
        if not found:
            racks = sorted({member.rack for member in members if member.rack})
            raise NoSuchWorker(
                f"no worker is in the rack {question.rack!r}; the racks are {', '.join(racks) or 'not set'}"
            )
        return found
    # A StatefulSet removes the pods with the highest numbers.
    ordered = sorted((member.name for member in members), key=natural)
    return frozenset(ordered[question.size :])


def _find_member(name: str, members: Sequence[MemberReport]) -> str:
    """Return the member with this name, URL, instance id, host or member id."""
    wanted = name.rstrip("/")
    for names_of in (_first_names, _second_names, _member_hosts):
        found = [member.name for member in members if wanted in names_of(member)]
        if len(found) > 1:
            raise NoSuchWorker(f"{name!r} names {len(found)} workers: {', '.join(sorted(found))}")
        if found:
            return found[0]
    known = ", ".join(sorted(member.name for member in members))
    unknown = (
        ""
        if all(member.url for member in members)
        else (
            "; the URLs of some members are unknown, as during a rebalance: repeat the command, or name a "
            "running worker with --worker"
        )
    )
    raise NoSuchWorker(f"no worker {name!r} in the group; its members are {known}{unknown}")


def _first_names(member: MemberReport) -> set[str | None]:
    return {member.name}


def _second_names(member: MemberReport) -> set[str | None]:
    url = member.url.rstrip("/")
    return {member.instance_id, member.member_id, url, url.partition("://")[2]}


def _member_hosts(member: MemberReport) -> set[str | None]:
    return {member.host, member.address}


def play(fleet: Fleet, question: Question, stopped: Collection[str]) -> Iterator[Played]:
    """Yield each event with the planner's moves.

    A rolling restart assumes that each static member returns in time; its event shows the moves of a late
    return, with the present lags. A restart of a dynamic member causes moves. All copies then catch up before
    the next event, because the operator waits between two stops.
    """
    if question.kind == ROLLING:
        for name in sorted(stopped, key=natural):
            worker = fleet.workers[name]
            down, after = _event(fleet.without([name]), f"{name} stops", [name])
            yield down
            if worker.data.instance_id:
                continue
            came = after.with_workers([_restarted_worker(worker)])
            back, fleet = _event(came, f"{name} is back", [])
            yield back
    elif question.kind == SCALE and question.size > len(fleet.workers):
        newcomers = _new_workers(fleet, question.size - len(fleet.workers))
        event = f"{len(newcomers)} new {'worker joins' if len(newcomers) == 1 else 'workers join'}"
        yield _event(fleet.with_workers(newcomers), event, [])[0]
    elif stopped:
        verb = "stops" if len(stopped) == 1 else "stop"
        crash = question.kind == LOSE_RACK
        event = f"{join_sorted(stopped)} {'are lost' if crash else verb}"
        played = _event(fleet.without(stopped), event, stopped, is_crash=crash)[0]
        yield replace(played, is_for_good=question.kind == SCALE)


def _event(
    after: Fleet, event: str, stopped: Collection[str], *, is_crash: bool = False
) -> tuple[Played, Fleet]:
    """Return (the event with its moves, the group after all its moves)."""
    if not after.workers:
        lost = Played(event=event, stopped=tuple(sorted(stopped)), is_crash=is_crash)
        return lost, after
    had = after.copies()
    now, moved = after.at_rest()
    then, later = now.settled()
    held: defaultdict[str, set[Place]] = defaultdict(set)
    for fleet in (now, then):
        for name, places in fleet.copies().items():
            held[name] |= places - had.get(name, set())
    played = Played(
        event=event,
        stopped=tuple(sorted(stopped)),
        is_crash=is_crash,
        members=len(after.workers),
        moved=moved,
        later=later,
        copied={name: frozenset(places) for name, places in held.items() if places},
    )
    return played, then


def _restarted_worker(worker: Worker) -> Worker:
    """Return a dynamic member after its restart: it has a new member id and the same files."""
    data = worker.data
    return replace(
        worker,
        member_id=f"{worker.member_id}-restarted",
        data=replace(
            _without_state(data),
            on_disk=by_topic(worker.positions),
            former_actives=data.actives,
            former_generation=data.generation,
        ),
    )


def _new_workers(fleet: Fleet, count: int) -> list[Worker]:
    """Return ``count`` workers without files, with the first worker's settings, spread over the racks."""
    model = min(fleet.workers.values(), key=lambda worker: worker.name)
    named = sorted({w.data.rack_id for w in fleet.workers.values() if w.data.rack_id})
    racks: list[str | None] = [*named] or [None]
    return [
        Worker(
            name=f"new-{n}",
            member_id=f"new-{n:06}",
            topics=model.topics,
            data=replace(
                _without_state(model.data),
                url=f"http://new-{n}:6066",
                rack_id=racks[n % len(racks)],
                capacity=1.0,
            ),
            positions={},
        )
        for n in range(count)
    ]


def _without_state(data: JoinData) -> JoinData:
    return replace(
        data,
        actives={},
        standbys={},
        on_disk={},
        former_actives={},
        former_generation=-1,
        promised={},
        among=0,
        generation=-1,
        instance_id=None,
        group_ids={},
        awaited={},
        overdue={},
        holds=False,
    )

"""Scenarios from a recorded week: who ran, who came and went, and what each partition carried.

Decisions tell the membership, assignments the topics, partition samples the load. What a ledger does not
say is taken like this:

* a member that is gone in one decision and back within RETURN_S (under its own id, or, as Kafka gives
  new ids to members without ``group.instance.id``, another new member of its rack) was restarted;
* a member that is gone for good left, or crashed where the trigger says so (CRASH_WORDS);
* topics of one partition count are one co-partitioned group; a topic is a changelog when it had a standby
  or a recovery, or is named like one.

Scenario 0 of each group is the week as it was; every further one keeps its incidents in their order and
draws anew whom they hit, how long it was quiet before, and which partitions are the heavy ones.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from faust_assigner.errors import FaustAssignerError
from faust_assigner.ledger import WEIGHTLESS, Row
from faust_assigner.model import Floats
from faust_assigner.pipeline.weights.rates import PartitionRate, bytes_per_record, rates_of
from faust_assigner.simulation.fleet import Event, Kind, Scenario, TaskGroup, Worker
from faust_assigner.weights.document import clamp_to_median

RETURN_S = 300.0
CRASH_WORDS = ("crash", "kill", "timeout", "expired", "lost", "dead", "fenced")
CHANGELOG_SUFFIX = "-changelog"
#: Taken for the table of a stateful partition that no sample measured.
NOMINAL_RECORDS = 10_000.0


class NothingRecorded(FaustAssignerError, ValueError):
    """A ledger holds no group to replay; says what is missing."""


class UnknownGroup(NothingRecorded):
    """The ledger does not know the group that was named, or there are several and none was."""

    exit_code = 2


class TopicFact(NamedTuple):
    """A topic as the assignments show it."""

    group_id: str
    topic: str
    partitions: int
    carries_state: bool


@dataclass(frozen=True)
class Facts:
    """What of a ledger a replay needs: small, whatever the ledger's size."""

    decisions: tuple[Mapping[str, Any], ...]
    topics: tuple[TopicFact, ...]
    rates: tuple[PartitionRate, ...]


def facts_of(rows: Iterable[Row]) -> Facts:
    """The facts in accepted ledger lines; a decision read twice counts once."""
    decisions: dict[tuple[str, str], Mapping[str, Any]] = {}
    topics: dict[tuple[str, str], tuple[int, bool]] = {}
    samples = []
    for row in rows:
        values = row.values
        if row.table == "decision":
            key = (values["group_id"], values["decision_id"])
            decisions[key] = min(values, decisions.get(key, values), key=lambda v: v["ts"])
        elif row.table == "partition_sample":
            samples.append(values)
        else:
            stateful = row.table == "recovery" or values["role"] != "active"
            count, known = topics.get((values["group_id"], values["topic"]), (0, False))
            topics[values["group_id"], values["topic"]] = (
                max(count, values["partition"] + 1), known or stateful)
    return Facts(
        tuple(sorted(decisions.values(), key=lambda v: (v["ts"], v["group_id"], v["decision_id"]))),
        tuple(TopicFact(*key, *topics[key]) for key in sorted(topics)), tuple(rates_of(samples)),
    )


@dataclass(frozen=True)
class Week:
    """A source of scenarios (see :class:`faust_assigner.pipeline.simulate.run.Source`): recorded groups."""

    recordings: tuple[Scenario, ...]

    def scenario(self, scenario_id: int, seed: int) -> Scenario:
        """The recording as it was, then variations of it; groups take turns."""
        recorded = self.recordings[scenario_id % len(self.recordings)]
        again = replace(recorded, scenario_id=scenario_id, seed=seed)
        return again if scenario_id < len(self.recordings) else _varied(again, np.random.default_rng(seed))


def week(facts: Facts, *, group_id: str | None = None) -> Week:
    """Every recorded group (or the one named) as a scenario; raises NothingRecorded."""
    known = sorted({decision["group_id"] for decision in facts.decisions})
    wanted = known if group_id is None else [group for group in known if group == group_id]
    if not wanted:
        if group_id:
            raise UnknownGroup(f"no decision of group {group_id!r} in the ledger, groups: {known}")
        raise NothingRecorded("no decision in the ledger")
    return Week(tuple(_recording(facts, group) for group in wanted))


def _recording(facts: Facts, group_id: str) -> Scenario:
    decisions = [decision for decision in facts.decisions if decision["group_id"] == group_id]
    # What adds no load moves nothing else: the other topics' plans are the same without it.
    idle = {name for decision in decisions for name in decision["config"].get(WEIGHTLESS, "").split()}
    topics = [topic for topic in facts.topics if topic.group_id == group_id and topic.topic not in idle]
    if not topics:
        raise NothingRecorded(f"no assignment of group {group_id!r} in the ledger: "
                              "its topics are not known")
    groups, members = _groups(topics)
    rates, records = _load(groups, members, [rate for rate in facts.rates if rate.group_id == group_id])
    diary = _Diary(decisions)
    return Scenario(
        0, 0, group_id, decisions[0]["ts"].date().isoformat(), tuple(diary.workers.values()), diary.start,
        groups, rates, records, diary.events(), clamp_to_median(rates),
    )


def _groups(topics: Sequence[TopicFact]) -> tuple[tuple[TaskGroup, ...], list[list[str]]]:
    """One group per partition count, and the topics whose load it carries."""
    groups, members = [], []
    for count in sorted({topic.partitions for topic in topics}):
        mine = [topic for topic in topics if topic.partitions == count]
        changelogs = [topic.topic for topic in mine
                      if topic.carries_state or topic.topic.endswith(CHANGELOG_SUFFIX)]
        sources = [topic.topic for topic in mine if topic.topic not in changelogs]
        changelog = changelogs[0] if changelogs else None
        groups.append(TaskGroup(sources[0] if sources else f"{changelog} (source)", count, changelog))
        members.append([topic.topic for topic in mine])
    return tuple(groups), members


def _load(groups: Sequence[TaskGroup], members: Sequence[Sequence[str]], rates: Sequence[PartitionRate],
          ) -> tuple[Floats, Floats]:
    """Records/s and changelog records of every task; 1 and NOMINAL_RECORDS where nothing was sampled."""
    found = {(rate.topic, rate.partition): rate for rate in rates}
    arrived, kept = [], []
    for group, topics in zip(groups, members, strict=True):
        for number in range(group.partitions):
            mine = [found[topic, number] for topic in topics if (topic, number) in found]
            arrived.append(sum(rate.records_in * 1_000.0 / rate.covered_ms for rate in mine))
            kept.append(sum(rate.state_bytes / bytes_per_record(rate) for rate in mine)
                        if group.changelog else 0.0)
    per_task, records = np.array(arrived), np.array(kept)
    stateful = np.repeat([group.changelog is not None for group in groups],
                         [group.partitions for group in groups])
    unknown = stateful & (records == 0)
    return (per_task if per_task.any() else np.ones(len(per_task)),
            np.where(unknown, NOMINAL_RECORDS, np.floor(records)))


@dataclass
class _Absence:
    """A member that is gone: since when, how, and for how long if it came back."""

    worker: str
    at_s: float
    crashed: bool
    down_s: float | None = None


@dataclass
class _Diary:
    """Who ran when, read from successive decisions."""

    decisions: Sequence[Mapping[str, Any]]
    workers: dict[str, Worker] = field(default_factory=dict)
    start: tuple[str, ...] = ()
    absences: list[_Absence] = field(default_factory=list)
    joins: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        names: dict[str, str] = {}  # member id -> the worker it is an incarnation of
        first = self.decisions[0]["ts"]
        for number, decision in enumerate(self.decisions):
            at = (decision["ts"] - first) / dt.timedelta(seconds=1)
            now = {member["member_id"]: member for member in decision["members"]}
            crashed = any(word in decision["trigger"].lower() for word in CRASH_WORDS)
            for gone in sorted(set(names) - set(now)):
                self.absences.append(_Absence(names.pop(gone), at, crashed))
            for member_id in sorted(set(now) - set(names)):
                names[member_id] = self._arrives(now[member_id], at, is_start=number == 0)
            if number == 0:
                self.start = tuple(sorted(names.values()))
        self.workers = {name: self.workers[name] for name in sorted(self.workers)}

    def _arrives(self, member: Mapping[str, Any], at: float, *, is_start: bool) -> str:
        rack, member_id = member["rack"], member["member_id"]
        back = [absence for absence in self.absences
                if absence.down_s is None and at - absence.at_s <= RETURN_S
                and (absence.worker == member_id or self.workers[absence.worker].rack_id == rack)]
        if back and not is_start:
            mine = min(back, key=lambda absence: (absence.worker != member_id, absence.at_s, absence.worker))
            mine.down_s = at - mine.at_s
            return mine.worker
        self.workers.setdefault(member_id, Worker(member_id, rack, max(member["capacity"], 1e-9)))
        if not is_start:
            self.joins.append(Event(at, Kind.JOIN, member_id))
        return str(member_id)

    def events(self) -> tuple[Event, ...]:
        """All that happened, in order of time; what happened at one moment, in the order of workers."""
        events = list(self.joins)
        for absence in self.absences:
            if absence.down_s is None:
                kind = Kind.CRASH if absence.crashed else Kind.LEAVE
            else:
                kind = Kind.BOUNCE if absence.crashed else Kind.RESTART
            events.append(Event(absence.at_s, kind, absence.worker, absence.down_s or 0.0))
        return tuple(sorted(events, key=lambda event: (event.at_s, event.member_id, event.kind.value)))


def _varied(recorded: Scenario, draw: np.random.Generator) -> Scenario:
    """The same incidents in the same order; other victims, other pauses, other heavy partitions."""
    running, restarts = list(recorded.start), dict.fromkeys(recorded.start, 0)
    events, at, before = [], 0.0, 0.0
    for event in recorded.events:
        at += (event.at_s - before) * float(draw.lognormal(0.0, 0.5))
        before = event.at_s
        if event.kind is Kind.JOIN:
            running.append(event.member_id)
            restarts.setdefault(event.member_id, 0)
            events.append(replace(event, at_s=at))
        elif running:
            victim = _victim(running, restarts, draw)
            events.append(replace(event, at_s=at, member_id=victim))
            restarts[victim] += 1
            if event.kind in (Kind.LEAVE, Kind.CRASH):
                running.remove(victim)
    order = np.concatenate([start + draw.permutation(group.partitions) for group, start in
                            zip(recorded.groups, recorded.offsets.tolist(), strict=False)])
    return replace(recorded, events=tuple(events), rates=recorded.rates[order],
                   records=recorded.records[order], learned_weights=recorded.learned_weights[order])


def _victim(running: Sequence[str], restarts: Mapping[str, int], draw: np.random.Generator) -> str:
    """Whoever was hit least so far: a rolling deploy goes round all workers before it starts again."""
    fewest = min(restarts[member_id] for member_id in running)
    fair = [member_id for member_id in running if restarts[member_id] == fewest]
    return fair[int(draw.integers(len(fair)))]

"""Scenarios from a recorded week: the members, their joins and departures, and each partition's load.

The membership is derived from decisions (``diary.py``), the topics from assignments, the load from partition
samples, and the cost of a recovery from recoveries (``measured.py``). Two facts are not in a ledger; they
are assumed:

* topics with equal partition counts are one co-partitioned group;
* a topic is a changelog if it had a standby or a recovery, or has a changelog's name.

The first scenario of each group is the recorded time. Each further scenario consists of randomly drawn whole
weeks, or of whole days if fewer than two weeks were recorded. A single day is repeated with other pauses
between its events. Random members have the incidents, and random partitions have the high loads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from faust_assigner.errors import FaustAssignerError
from faust_assigner.model import Floats
from faust_assigner.pipeline.rows import CHANGELOG_SUFFIX
from faust_assigner.pipeline.simulate.diary import Diary
from faust_assigner.pipeline.simulate.facts import Facts, TopicFact, weightless_topics
from faust_assigner.pipeline.weights.rates import PartitionRate, records_kept
from faust_assigner.simulation.fleet import Event, Kind, Scenario, TaskGroup
from faust_assigner.weights.limits import clamp_to_median

DAY_S = 86_400.0
#: Assumed changelog records of a stateful partition without samples.
NOMINAL_RECORDS = 10_000.0


class NothingRecorded(FaustAssignerError, ValueError):
    """The ledger has no group that can be simulated; the message names the missing part."""


class UnknownGroup(NothingRecorded):
    """The ledger lacks the named group, or it has several groups and the user named no group."""

    exit_code = 2


@dataclass(frozen=True)
class Week:
    """Recorded groups as a source of scenarios (see :class:`faust_assigner.pipeline.simulate.run.Source`).

    A variation of a recording consists of randomly drawn whole weeks (of days, if under two weeks were
    recorded). Scenarios that choose settings (part 0) draw from the even weeks; scenarios that evaluate the
    chosen settings (part 1) draw from the odd weeks.
    """

    recordings: tuple[Scenario, ...]

    def scenario(self, scenario_id: int, seed: int) -> Scenario:
        """Return the scenario with this number: first the unchanged recordings, then variations in turn."""
        recorded = self.recordings[scenario_id % len(self.recordings)]
        again = replace(recorded, scenario_id=scenario_id, seed=seed)
        if scenario_id < len(self.recordings):
            return again
        return _varied(again, np.random.default_rng(seed), self.split_of(scenario_id))

    def split_of(self, scenario_id: int) -> int | None:
        """Return 0 if the scenario chooses settings, 1 if it evaluates them, None for a recording."""
        turn = scenario_id // len(self.recordings)
        return (turn - 1) % 2 if turn else None


def week(facts: Facts, *, group_id: str | None = None) -> Week:
    """Return each recorded group (or only ``group_id``) as a scenario; raise NothingRecorded without any."""
    known = sorted({decision["group_id"] for decision in facts.decisions})
    wanted = known if group_id is None else [group for group in known if group == group_id]
    if not wanted:
        if group_id:
            raise UnknownGroup(f"no decision of group {group_id!r} in the ledger, groups: {known}")
        raise NothingRecorded("no decision in the ledger")
    return Week(tuple(_recording(facts, group) for group in wanted))


def _recording(facts: Facts, group_id: str) -> Scenario:
    decisions = [decision for decision in facts.decisions if decision["group_id"] == group_id]
    # A weightless topic adds no load, so the plans of the other topics are the same without it.
    idle = weightless_topics(decisions)
    mine = facts.of_group(group_id)
    topics = [topic for topic in mine.topics if (group_id, topic.topic) not in idle]
    if not topics:
        raise NothingRecorded(
            f"no assignment of group {group_id!r} in the ledger: its topics are not known"
        )
    groups, members = _groups(topics)
    rates, records = _load(groups, members, mine.rates)
    learned, halves = rates, (mine.before, mine.after)
    if all(any(rate.arrived_per_s for rate in half) for half in halves):
        # Weights are learned from the first half of the time; the simulated load is that of the second half.
        learned, rates = (_load(groups, members, half)[0] for half in halves)
    diary = Diary(decisions, facts.last_seen)
    return Scenario(
        0,
        0,
        group_id,
        decisions[0]["ts"].date().isoformat(),
        tuple(diary.workers.values()),
        diary.start,
        groups,
        rates,
        records,
        diary.events(),
        clamp_to_median(learned),
    )


def _groups(topics: Sequence[TopicFact]) -> tuple[tuple[TaskGroup, ...], list[list[str]]]:
    """Return one group per partition count, and for each group its topics, whose loads are summed."""
    groups, members = [], []
    for count in sorted({topic.partitions for topic in topics}):
        mine = [topic for topic in topics if topic.partitions == count]
        changelogs = [
            topic.topic
            for topic in mine
            if topic.carries_state or topic.topic.endswith(CHANGELOG_SUFFIX)
        ]
        sources = [topic.topic for topic in mine if topic.topic not in changelogs]
        changelog = changelogs[0] if changelogs else None
        groups.append(
            TaskGroup(sources[0] if sources else f"{changelog} (source)", count, changelog)
        )
        members.append([topic.topic for topic in mine])
    return tuple(groups), members


def _load(
    groups: Sequence[TaskGroup], members: Sequence[Sequence[str]], rates: Sequence[PartitionRate]
) -> tuple[Floats, Floats]:
    """Return the records/s and the changelog records of each task.

    Without samples each task has 1 record/s, and a stateful task has NOMINAL_RECORDS.
    """
    found = {(rate.topic, rate.partition): rate for rate in rates}
    arrived, kept = [], []
    for group, topics in zip(groups, members, strict=True):
        for number in range(group.partitions):
            mine = [found[topic, number] for topic in topics if (topic, number) in found]
            arrived.append(sum(rate.arrived_per_s for rate in mine))
            kept.append(sum(map(records_kept, mine)) if group.changelog else 0.0)
    per_task, records = np.array(arrived), np.array(kept)
    stateful = np.repeat(
        [group.changelog is not None for group in groups], [group.partitions for group in groups]
    )
    unknown = stateful & (records == 0)
    return (
        per_task if per_task.any() else np.ones(len(per_task)),
        np.where(unknown, NOMINAL_RECORDS, np.floor(records)),
    )


def _periods(events: Sequence[Event], draw: np.random.Generator, part: int) -> list[Event] | None:
    """Draw, with replacement, as many periods as were recorded: even periods for ``part`` 0, odd for 1.

    None if fewer than two periods were recorded.

    A period is a week if two weeks were recorded, since weekdays differ; else a period is a day.
    """
    last = max((event.at_s for event in events), default=0.0)
    length = 7 * DAY_S if last >= 14 * DAY_S else DAY_S
    count = int(last // length) + (length == DAY_S)  # an incomplete last week is left out
    theirs = [period for period in range(count) if period % 2 == part]
    if count < 2:
        return None
    found = []
    for place in range(count):
        period = theirs[int(draw.integers(len(theirs)))]
        found += [
            replace(event, at_s=event.at_s + (place - period) * length)
            for event in events
            if event.at_s // length == period
        ]
    return found


def _varied(recorded: Scenario, draw: np.random.Generator, part: int | None = None) -> Scenario:
    """Return a variation: random members in the incidents, shuffled loads, and other days or pauses."""
    running, restarts = list(recorded.start), dict.fromkeys(recorded.start, 0)
    days = None if part is None else _periods(recorded.events, draw, part)
    events, at, before = [], 0.0, 0.0
    for event in recorded.events if days is None else days:
        if days is None:
            at += (event.at_s - before) * float(draw.lognormal(0.0, 0.5))
        else:
            at = event.at_s
        before = event.at_s
        if event.kind is Kind.JOIN:
            if event.member_id in running:
                continue  # the day was drawn twice, and the member already runs
            running.append(event.member_id)
            restarts.setdefault(event.member_id, 0)
            events.append(replace(event, at_s=at))
        elif running and (len(running) > 1 or event.kind not in (Kind.LEAVE, Kind.CRASH)):
            victim = _victim(running, restarts, draw)
            events.append(replace(event, at_s=at, member_id=victim))
            restarts[victim] += 1
            if event.kind in (Kind.LEAVE, Kind.CRASH):
                running.remove(victim)
    order = np.concatenate(
        [
            start + draw.permutation(group.partitions)
            for group, start in zip(recorded.groups, recorded.offsets.tolist(), strict=False)
        ]
    )
    return replace(
        recorded,
        events=tuple(events),
        rates=recorded.rates[order],
        records=recorded.records[order],
        learned_weights=recorded.learned_weights[order],
    )


def _victim(running: Sequence[str], restarts: Mapping[str, int], draw: np.random.Generator) -> str:
    """Return a random member among those with the fewest incidents so far.

    A deploy, which is a series of restarts, then restarts each worker once.
    """
    fewest = min(restarts[member_id] for member_id in running)
    fair = [member_id for member_id in running if restarts[member_id] == fewest]
    return fair[int(draw.integers(len(fair)))]

"""The facts of a ledger that a simulation needs, in plain Python; ``on_spark.py`` computes them on Spark."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple

from faust_assigner.ledger import WEIGHTLESS, Row
from faust_assigner.pipeline.rows import DecisionRow, PlacementRow, RecoveryRow, SampleRow, grouped
from faust_assigner.pipeline.simulate.measured import RecoveryFact
from faust_assigner.pipeline.weights.rates import NO_DECAY, PartitionRate, rates_of


class TopicFact(NamedTuple):
    """A topic, derived from assignments and recoveries."""

    group_id: str
    topic: str
    partitions: int
    carries_state: bool


@dataclass(frozen=True)
class Facts:
    """The facts of a ledger that a simulation needs; their size does not depend on the number of samples."""

    decisions: tuple[DecisionRow, ...]
    topics: tuple[TopicFact, ...]
    rates: tuple[PartitionRate, ...]
    recoveries: tuple[RecoveryFact, ...] = ()
    #: (group, decision, member) -> the time of the last sample of the member's partitions before the next
    #: decision. A long time without samples indicates a crash.
    last_seen: Mapping[tuple[str, str, str], datetime] = field(default_factory=dict)
    #: (group, decision) -> (the number of tasks that the decision moved, the number of cold moves).
    outcomes: Mapping[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    #: The rates in the first and in the second half of the samples' time. Weights are learned from the
    #: first half and evaluated on the second half.
    before: tuple[PartitionRate, ...] = ()
    after: tuple[PartitionRate, ...] = ()

    def recorded(self) -> dict[str, int]:
        """Count the rebalances, moved tasks and cold moves after each group's first decision."""
        seen: set[str] = set()
        later = []
        for each in self.decisions:
            if each["group_id"] in seen:
                later.append((each["group_id"], each["decision_id"]))
            seen.add(each["group_id"])
        found = [self.outcomes.get(key, (0, 0)) for key in later]
        return {
            "rebalances": len(later),
            "moved": sum(moved for moved, _ in found),
            "cold_moves": sum(cold for _, cold in found),
        }

    def of_group(self, group_id: str | None) -> Facts:
        """Return the facts of one group; of all groups if ``group_id`` is None."""
        if group_id is None:
            return self
        return replace(
            self,
            decisions=tuple(each for each in self.decisions if each["group_id"] == group_id),
            topics=tuple(each for each in self.topics if each.group_id == group_id),
            rates=tuple(each for each in self.rates if each.group_id == group_id),
            recoveries=tuple(each for each in self.recoveries if each.group_id == group_id),
            before=tuple(each for each in self.before if each.group_id == group_id),
            after=tuple(each for each in self.after if each.group_id == group_id),
        )


def facts_of(rows: Iterable[Row]) -> Facts:
    """Return the facts in accepted ledger lines; a decision that was read twice counts once."""
    decisions: dict[tuple[str, str], DecisionRow] = {}
    topics: dict[tuple[str, str], tuple[int, bool]] = {}
    samples: list[SampleRow] = []
    recoveries: list[RecoveryRow] = []
    placed: list[PlacementRow] = []
    for row in rows:
        values = row.values
        if row.table == "decision":
            key = (values["group_id"], values["decision_id"])
            decisions[key] = min(values, decisions.get(key, values), key=lambda v: v["ts"])
        elif row.table == "partition_sample":
            samples.append(values)
        else:
            (recoveries if row.table == "recovery" else placed).append(values)
            stateful = row.table == "recovery" or values["role"] != "active"
            count, known = topics.get((values["group_id"], values["topic"]), (0, False))
            topics[values["group_id"], values["topic"]] = (
                max(count, values["partition"] + 1),
                known or stateful,
            )
    ordered = sorted(decisions.values(), key=lambda v: (v["ts"], v["group_id"], v["decision_id"]))
    return Facts(
        tuple(ordered),
        tuple(TopicFact(*key, *topics[key]) for key in sorted(topics)),
        tuple(rates_of(samples, half_life_s=NO_DECAY)),
        tuple(_recoveries(recoveries)),
        _last_seen(ordered, placed, samples),
        _outcomes(ordered, placed),
        *_halves(samples),
    )


def _halves(
    samples: Sequence[SampleRow],
) -> tuple[tuple[PartitionRate, ...], tuple[PartitionRate, ...]]:
    """Return the rates before and after the middle of the samples' time."""
    if not samples:
        return (), ()
    moments = [row["ts"] for row in samples]
    middle = min(moments) + (max(moments) - min(moments)) / 2
    return (
        tuple(rates_of(row for row in samples if row["ts"] < middle)),
        tuple(rates_of((row for row in samples if row["ts"] >= middle), half_life_s=NO_DECAY)),
    )


def weightless_topics(decisions: Iterable[DecisionRow]) -> set[tuple[str, str]]:
    """Return the (group, topic) pairs that add no load; a simulation leaves them out."""
    return {
        (each["group_id"], topic)
        for each in decisions
        for topic in each["config"].get(WEIGHTLESS, "").split()
    }


def _outcomes(
    decisions: Sequence[DecisionRow], placed: Iterable[PlacementRow]
) -> dict[tuple[str, str], tuple[int, int]]:
    """Return (group, decision) -> (moved tasks, cold moves); topics of one partition count move together."""
    idle = weightless_topics(decisions)
    actives = [
        row
        for row in placed
        if row["role"] == "active" and (row["group_id"], row["topic"]) not in idle
    ]
    counts: dict[tuple[str, str], int] = {}
    for row in actives:
        topic = (row["group_id"], row["topic"])
        counts[topic] = max(counts.get(topic, 0), row["partition"] + 1)
    moved: dict[tuple[str, str], set[tuple[int, int]]] = {}
    cold: dict[tuple[str, str], set[tuple[int, int]]] = {}
    for row in actives:
        key = (row["group_id"], row["decision_id"])
        task = (counts[row["group_id"], row["topic"]], row["partition"])
        if row["moved"]:
            moved.setdefault(key, set()).add(task)
            if row["cold"]:
                cold.setdefault(key, set()).add(task)
    return {key: (len(tasks), len(cold.get(key, ()))) for key, tasks in moved.items()}


def _recoveries(rows: Iterable[RecoveryRow]) -> list[RecoveryFact]:
    """Return one fact per decision and member; a duplicate row counts once."""
    once = {tuple(sorted(each.items())): each for each in rows}.values()
    by_member = grouped(once, lambda row: (row["group_id"], row["decision_id"], row["member_id"]))
    facts = []
    for key, mine in sorted(by_member.items()):
        took = max(row["ended"] for row in mine) - min(row["started"] for row in mine)
        facts.append(
            RecoveryFact(
                *key,
                took.total_seconds(),
                sum(row["records"] for row in mine),
                any(row["source"] == "replay" for row in mine),
            )
        )
    return facts


def _last_seen(
    decisions: Sequence[DecisionRow], placed: Iterable[PlacementRow], samples: Iterable[SampleRow]
) -> dict[tuple[str, str, str], datetime]:
    owners = {
        (row["group_id"], row["decision_id"], row["topic"], row["partition"]): row["member_id"]
        for row in placed
        if row["role"] == "active"
    }
    times = decision_times(decisions)
    found: dict[tuple[str, str, str], datetime] = {}
    for row in samples:
        name = decision_at(times.get(row["group_id"], ([], [])), row["ts"])
        owner = owners.get((row["group_id"], name, row["topic"], row["partition"]))
        if owner is not None:
            key = (row["group_id"], name, owner)
            found[key] = max(row["ts"], found.get(key, row["ts"]))
    return found


#: A group's decisions in order of time: their times and their ids.
Times = tuple[Sequence[datetime], Sequence[str]]


def decision_times(decisions: Sequence[DecisionRow]) -> dict[str, Times]:
    """Return group -> its decisions' times and ids; ``decisions`` are in order of time."""
    found: dict[str, tuple[list[datetime], list[str]]] = {}
    for decision in decisions:
        moments, names = found.setdefault(decision["group_id"], ([], []))
        moments.append(decision["ts"])
        names.append(decision["decision_id"])
    return {group: (moments, names) for group, (moments, names) in found.items()}


def decision_at(times: Times, moment: datetime) -> str:
    """Return the id of the newest decision at ``moment``; empty before the first decision."""
    at = bisect.bisect_right(times[0], moment)
    return times[1][at - 1] if at else ""

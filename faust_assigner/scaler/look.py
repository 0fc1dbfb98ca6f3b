"""The scaler's view of a group, from the result of one query. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from faust_assigner.clients.group_views import as_ranges
from faust_assigner.grouper import PartitionGrouper
from faust_assigner.status.build import build, changelogs_of
from faust_assigner.status.evidence import Evidence, Place
from faust_assigner.status.members import View, join_sorted, views_of
from faust_assigner.status.report import ANSWERED, MemberReport, Partition, Report
from faust_assigner.status.words import leader_topic
from faust_assigner.wire.documents import whole_number

#: Reasons why a partition is not processed during a rebalance or restore -> the reason as text.
_MOVING = {
    "restoring": "restores its tables",
    "round": "waits for a rebalance",
    "hand_over": "is handed over",
    "group": "waits for the group's coordinator",
}


@dataclass(frozen=True, kw_only=True)
class Source:
    """A partition of a source topic: the owner's name, the committed offset and the end offset.

    ``owner`` is "" without an owner. ``committed`` is None before the first commit.
    """

    owner: str
    committed: int | None
    end: int

    @property
    def lag(self) -> int:
        """The number of uncommitted records; 0 if no offset was ever committed."""
        return 0 if self.committed is None else max(0, self.end - self.committed)


@dataclass(frozen=True, kw_only=True)
class Look:
    """A group at the moment ``taken_at``, in seconds of a monotonic clock.

    ``tasks`` is the number of units of work: equal partition numbers of co-partitioned topics are one
    task. ``tasks`` is 0 while no member reports its topics. ``standbys`` is ``table_standby_replicas``, 0
    without tables, None without an answer. ``busy`` has a sentence for each reason against a change of the
    size.
    ``notes`` are sentences about missing or ignored data.
    """

    taken_at: float
    members: int
    tasks: int
    standbys: int | None = 0
    sources: Mapping[Place, Source] = field(default_factory=dict)
    busy: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def backlog(self) -> int:
        """The number of uncommitted records of all source partitions."""
        return sum(source.lag for source in self.sources.values())


def look_of(evidence: Evidence) -> Look:
    """Convert a query's result. Invalid bytes from a member never raise. Cost: that of a status report."""
    views, report = views_of(evidence), build(evidence)
    sources = _sources(report)
    if not report.members:
        sources = _never_committed(evidence, sources) | sources
    return Look(
        taken_at=evidence.taken_at,
        members=report.totals.members,
        tasks=_tasks(evidence, views),
        standbys=_standbys(views) if changelogs_of(evidence, views) else 0,
        sources=sources,
        busy=(*_reasons_to_wait(report, views), *_leaderless(evidence)),
        notes=tuple(_notes(report, sources)),
    )


def _tasks(evidence: Evidence, views: Sequence[View]) -> int:
    """Return the number of tasks that add load, in the leader's grouping; Faust's leader topic adds 0."""
    counts: dict[str, int] = {}
    for topic, number in evidence.ends:
        counts[topic] = max(counts.get(topic, 0), number + 1)
    subscriptions = [view.member.topics for view in views if view.member.topics]
    groups = PartitionGrouper().group(
        subscriptions,
        counts,
        changelogs=changelogs_of(evidence, views) & counts.keys(),
        weightless={leader_topic(evidence.group.group_id)} & counts.keys(),
    )
    return sum(group.partitions for group in groups if group.adds_load)


def _standbys(views: Sequence[View]) -> int | None:
    """Return the largest number of standbys that a worker reports; during a deploy workers may differ."""
    found = [
        number
        for view in views
        if view.status is not None
        and (number := whole_number(view.status.settings.get("table_standby_replicas", "")))
        is not None
    ]
    return max(found, default=None)


def _sources(report: Report) -> dict[Place, Source]:
    leader = leader_topic(report.group)
    return {
        (one.topic, one.partition): Source(
            owner=one.owner or "", committed=one.committed, end=one.end
        )
        for one in report.partitions
        if not one.is_changelog and one.topic != leader and one.end is not None
    }


def _never_committed(evidence: Evidence, sources: Mapping[Place, Source]) -> dict[Place, Source]:
    """Return all partitions of the source topics, as if no offset were committed.

    The report of a group without members has no partition without a committed offset.
    """
    topics = {topic for topic, _ in sources}
    return {
        place: Source(owner="", committed=None, end=end)
        for place, end in evidence.ends.items()
        if place[0] in topics
    }


def _reasons_to_wait(report: Report, views: Sequence[View]) -> Iterator[str]:
    """Yield the reasons against a change of the size: of the group, then of members and of partitions."""
    if report.members and not report.is_settled:
        yield f"a rebalance is in progress ({report.state})"
    elif any(view.member.given is not None and view.member.given.among for view in views):
        yield "the second of two rounds of a rebalance is about to begin"
    for member in report.members:
        yield from _member(member)
    yield from _standing(report.partitions)
    if report.members and report.is_settled and all(one.end is None for one in report.partitions):
        yield "the brokers did not return end offsets"


def _leaderless(evidence: Evidence) -> Iterator[str]:
    """Yield the reason against a change while the backlog of some partitions is unknown."""
    if evidence.leaderless:
        yield f"partitions without a leader: {'; '.join(as_ranges(evidence.leaderless))}"


def _member(member: MemberReport) -> Iterator[str]:
    if member.answer != ANSWERED:
        yield f"worker {member.name} does not answer ({member.answer}: {member.detail})"
        return
    if member.is_leaving:
        yield f"worker {member.name} is stopping"
    if member.restore_remaining_records:
        left = member.restore_remaining_records
        yield f"worker {member.name} restores state, {left:,} records remain"
    if member.warmups:
        places = ((topic, n) for topic, numbers in member.warmups.items() for n in numbers)
        yield f"worker {member.name} warms up {join_sorted(list(as_ranges(places)))}"
    if member.not_live or member.not_ready:
        yield f"worker {member.name} is not ready: {(*member.not_live, *member.not_ready)[0]}"


def _standing(partitions: Sequence[Partition]) -> Iterator[str]:
    for reason, words in _MOVING.items():
        places = [
            (one.topic, one.partition)
            for one in partitions
            if one.standing is not None and one.standing.reason == reason
        ]
        if places:
            yield f"{join_sorted(list(as_ranges(places)))} {words}"


def _notes(report: Report, sources: Mapping[Place, Source]) -> Iterator[str]:
    capacities = {member.capacity for member in report.members if member.capacity is not None}
    if len(capacities) > 1:
        yield "the workers' capacities differ; sizes are computed as if all workers were alike"
    fresh = [place for place, source in sources.items() if source.committed is None and source.end]
    if fresh:
        yield f"{join_sorted(list(as_ranges(fresh)))}: no offset is committed yet, so the lag is unknown"
    yield from report.problems

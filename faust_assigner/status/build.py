"""Builds the report of a query, without I/O.

Cost: one second for 1,000 members (``benchmarks/status.py``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from faust_assigner.claims import offsets_at
from faust_assigner.settings.table import SETTINGS
from faust_assigner.status.described import COOPERATIVE
from faust_assigner.status.evidence import Evidence, Place
from faust_assigner.status.member_reports import reports_of
from faust_assigner.status.members import View, owners_of, views_of
from faust_assigner.status.report import (
    Copy,
    Decision,
    Difference,
    MemberReport,
    Partition,
    Report,
    Standstill,
    Totals,
)
from faust_assigner.status.waiting import waits_of
from faust_assigner.status.words import leader_topic
from faust_assigner.wire import join
from faust_assigner.wire.worker_status import WorkerStatus

#: Settings that may differ between workers of a group.
_OF_WORKER = frozenset(setting.name for setting in SETTINGS if setting.of_worker)


def build(evidence: Evidence) -> Report:
    """Build the report of one query."""
    views = views_of(evidence)
    copies = _copies_by_partition(views, evidence.ends)
    partitions = _partition_reports(views, copies, evidence)
    differences = _setting_differences(views)
    decision = _decision(views)
    members = reports_of(views, partitions, differences, decision)
    return Report(
        group=evidence.group.group_id,
        state=evidence.group.state,
        is_settled=evidence.group.is_settled,
        rounds=_round_kind(evidence, views),
        coordinator=evidence.group.coordinator,
        taken_at=evidence.taken_at,
        decision=decision,
        totals=_report_totals(len(evidence.group.members), members, partitions, decision),
        members=members,
        partitions=partitions,
        waits=waits_of(evidence.group, views, copies),
        differences=differences,
        problems=(*evidence.problems, *_missing_parts(evidence, views)),
    )


def _round_kind(evidence: Evidence, views: Sequence[View]) -> str:
    """Return ``cooperative``, ``eager`` or ``unknown``: the kind of the last round by its protocol.

    During a round: ``cooperative`` if all workers with an answer are cooperative, else ``eager``.
    """
    if evidence.group.is_settled:
        return "cooperative" if evidence.group.protocol == join.COOPERATIVE else "eager"
    known = [view.kind for view in views if view.status is not None]
    if not known:
        return "unknown"
    return "cooperative" if set(known) == {COOPERATIVE} else "eager"


def _copies_by_partition(
    views: Sequence[View], ends: Mapping[Place, int]
) -> dict[Place, tuple[Copy, ...]]:
    """Return the copies of each changelog partition, in the order of ``views``."""
    found: defaultdict[Place, list[Copy]] = defaultdict(list)
    for view in views:
        status = view.status
        measured = (
            {} if status is None else {(copy.topic, copy.partition): copy for copy in status.copies}
        )
        for is_warmup, held in ((False, view.standbys), (True, view.warmups)):
            for topic, numbers in held.items():
                said = _reported_positions(view, topic, numbers)
                for number, at in zip(numbers, said, strict=True):
                    place = topic, number
                    copy = measured.get(place)
                    end = ends.get(place)
                    if copy is not None:
                        lag: int | None = copy.records
                    else:
                        lag = None if at is None or end is None else max(0, end - at)
                    found[place].append(
                        Copy(
                            member=view.name,
                            is_warmup=is_warmup,
                            lag=lag,
                            seconds=copy.seconds if copy else None,
                            is_measured=copy is not None,
                        )
                    )
    return {place: tuple(copies) for place, copies in found.items()}


def _reported_positions(view: View, topic: str, numbers: Sequence[int]) -> list[int | None]:
    """Return the position of each copy at its member's join; None if not reported."""
    said = None if view.member.said is None else view.member.said.positions
    if said is None:
        return [None] * len(numbers)
    offsets: list[int | None] = [
        *offsets_at(said.get(topic, {}), np.array(numbers, dtype=np.int64)).tolist()
    ]
    return offsets


def _partition_reports(
    views: Sequence[View], copies: Mapping[Place, tuple[Copy, ...]], evidence: Evidence
) -> tuple[Partition, ...]:
    owners = owners_of(views)
    still = {
        (one.topic, one.partition): Standstill(reason=one.reason, seconds=one.seconds)
        for view in views
        if view.status is not None
        for one in view.status.standing
    }
    changelogs = changelogs_of(evidence, views)
    leader = leader_topic(evidence.group.group_id)
    found = []
    for place in sorted({*owners, *copies, *evidence.committed}):
        topic, number = place
        is_changelog = topic in changelogs
        committed, end = evidence.committed.get(place), evidence.ends.get(place)
        lag = None
        is_read = not is_changelog and topic != leader
        if is_read and end is not None and (committed is not None or end == 0):
            lag = max(0, end - (committed or 0))
        found.append(
            Partition(
                topic=topic,
                partition=number,
                is_changelog=is_changelog,
                owner=owners.get(place),
                committed=committed,
                end=end,
                lag=lag,
                standing=still.get(place),
                copies=copies.get(place, ()),
            )
        )
    return tuple(found)


def changelogs_of(evidence: Evidence, views: Sequence[View]) -> frozenset[str]:
    """Return the changelog topics, from members' metadata and by Faust's naming convention."""
    prefix, found = f"{evidence.group.group_id}-", set[str]()
    for view in views:
        if view.member.said is not None and view.member.said.is_ours:
            found |= view.member.said.changelogs
        else:
            found |= {table.changelog for table in view.tables}
        topics = {*view.member.topics, *view.actives, *view.standbys}
        found |= {t for t in topics if t.startswith(prefix) and t.endswith("-changelog")}
    return frozenset(found)


def _setting_differences(views: Sequence[View]) -> tuple[Difference, ...]:
    """Return settings and versions that differ between the workers that answered."""
    values: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for view in views:
        if view.status is not None:
            for name, value in _compared_values(view.status):
                values[name][view.name] = value
    found = []
    for name, by_member in sorted(values.items()):
        if len(set(by_member.values())) > 1:
            groups: defaultdict[str, list[str]] = defaultdict(list)
            for member, value in sorted(by_member.items()):
                groups[value].append(member)
            found.append(
                Difference(name=name, values={v: tuple(members) for v, members in groups.items()})
            )
    return tuple(found)


def _compared_values(status: WorkerStatus) -> Iterator[tuple[str, str]]:
    yield "version of faust-assigner", status.software
    yield "version of faust-streaming", status.faust
    yield "version of aiokafka", status.aiokafka
    yield "version of Python", status.python.rpartition(".")[0]
    yield "version of the app", status.app_version
    yield from ((n, value) for n, value in status.settings.items() if n not in _OF_WORKER)


def _decision(views: Sequence[View]) -> Decision | None:
    """Return the newest decision in the members' answers.

    The leader's own answer is preferred, because it has more details.
    """
    told = [
        (answer.generation, answer.decision_id, answer.outcome, view)
        for view in views
        for answer in (view.member.given, view.status)
        if answer is not None and answer.outcome is not None
    ]
    if not told:
        return None
    newest = max(generation for generation, *_ in told)
    same = [entry for entry in told if entry[0] == newest]
    generation, decision_id, outcome, view = next(
        (entry for entry in same if entry[2] is not None and entry[2].leads), same[0]
    )
    if outcome is None:
        return None
    return Decision(
        decision_id=decision_id,
        generation=generation,
        leader=view.name if outcome.leads else None,
        at=outcome.decided_at or None,
        trigger=outcome.trigger,
        completes=outcome.completes,
        joined=outcome.joined,
        left=outcome.left,
        members=outcome.members,
        tasks=outcome.tasks,
        moved=outcome.moved,
        cold=outcome.cold,
        off_target=outcome.off_target,
        warming=outcome.warming,
        is_planned=outcome.is_planned,
    )


def _report_totals(
    count: int,
    members: Sequence[MemberReport],
    partitions: Sequence[Partition],
    decision: Decision | None,
) -> Totals:
    copies = [copy for partition in partitions for copy in partition.copies]
    return Totals(
        members=count,
        answered=sum(member.host is not None for member in members),
        ready=sum(bool(member.ready) for member in members),
        active_partitions=sum(partition.owner is not None for partition in partitions),
        standby_partitions=sum(not copy.is_warmup for copy in copies),
        warmup_partitions=sum(copy.is_warmup for copy in copies),
        standing_partitions=sum(partition.standing is not None for partition in partitions),
        lag=sum(partition.lag or 0 for partition in partitions),
        standby_lag=sum(copy.lag or 0 for copy in copies if not copy.is_warmup),
        off_target=None if decision is None else decision.off_target,
    )


def _missing_parts(evidence: Evidence, views: Sequence[View]) -> Iterator[str]:
    """Yield a sentence for each part of the report that is missing or unreadable."""
    for view in views:
        if view.member.problem:
            yield f"{view.name}: {view.member.problem}"
        if not view.member.member_id:
            yield (
                f"{view.name} was in the last round and does not answer. Its member id is unknown "
                "during the rebalance"
            )
    if evidence.group.is_rebalancing and not any(view.does_answer for view in views):
        yield (
            "The coordinator shows no assignments during a rebalance, and no worker "
            "answered. Name a worker with --worker http://HOST:PORT, or repeat the command after the "
            "rebalance"
        )

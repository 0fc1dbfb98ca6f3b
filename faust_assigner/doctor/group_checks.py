"""Checks a running group: returns the findings for one or two queries. No I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from faust_assigner.app.host.check import in_range
from faust_assigner.app.host.private_apis import VERSIONS
from faust_assigner.doctor.codes import NOTE, WARNING, Finding, finding
from faust_assigner.doctor.facts import GroupFacts
from faust_assigner.doctor.table_checks import check_tables
from faust_assigner.doctor.times import Times, check_grace, check_times
from faust_assigner.settings.places import is_loopback, is_loopback_url
from faust_assigner.settings.table import COOPERATIVE, GROUP_RECORD_BYTES, LEAVE_S, LEDGER, REPAIRS
from faust_assigner.status import described
from faust_assigner.status.build import build
from faust_assigner.status.members import View, views_of
from faust_assigner.status.report import Report
from faust_assigner.status.words import list_names, size
from faust_assigner.wire.documents import whole_number

#: Kafka's default size limit for a record, and so for a group's record.
RECORD_BYTES = 1_048_588
#: From this share of its limit on, the size of a group's record is a finding.
NEAR = 0.8
#: The names of Faust's settings for a worker's intervals and timeouts.
_HEARTBEAT, _SESSION, _POLL, _REBALANCE = (
    "broker_heartbeat_interval",
    "broker_session_timeout",
    "broker_max_poll_interval",
    "broker_rebalance_timeout",
)
_REPLICAS = "table_standby_replicas"
#: The prefix of differences in versions rather than settings.
_VERSION = "version of "


def check_group(facts: GroupFacts) -> tuple[Finding, ...]:
    """Return all findings about a group."""
    views, report = views_of(facts.evidence), build(facts.evidence)
    return (
        *_check_assignor(views),
        *_check_instance_ids(facts, views),
        *_check_urls(views),
        *_check_loopback(views),
        *_times(views, facts.session_bounds_s),
        *check_tables(facts, views),
        *_check_record_size(facts, views),
        *_check_differences(report),
        *_check_versions(views, report),
        *_check_eager(views),
        *_check_racks(views),
        *_check_ledger(views),
    )


def check_group_grace(facts: GroupFacts, grace_s: float) -> tuple[Finding, ...]:
    """Check that the supervisor waits long enough for each worker's stop.

    Each worker's own settings determine the time of its stop.
    """
    alike: defaultdict[float, list[str]] = defaultdict(list)
    for view in views_of(facts.evidence):
        if view.status is not None:
            alike[_leave_s(view)].append(view.name)
    return tuple(
        one
        for leave_s, names in sorted(alike.items())
        for one in check_grace(grace_s, leave_s, subject=list_names(names))
    )


def _leave_s(view: View) -> float:
    """Return the time limit of a worker's hand-over in seconds; 0 without a hand-over."""
    has_repairs = view.settings.get(REPAIRS.name) != "0"
    if view.kind != described.COOPERATIVE or view.instance_id or not has_repairs:
        return 0.0
    try:
        return float(view.settings.get(LEAVE_S.name, ""))
    except ValueError:
        return 0.0


def unchecked(facts: GroupFacts) -> tuple[str, ...]:
    """Return a sentence about each check that was not possible."""
    found = []
    group = facts.evidence.group
    if not group.members:
        found.append("The group has no members: no worker runs, or no worker has joined yet")
    elif group.is_rebalancing:
        found.append(
            "A rebalance is in progress: the coordinator hides the members' versions, racks and URLs and "
            "the size of their assignments. Run the doctor again after the rebalance"
        )
    mute = [view for view in views_of(facts.evidence) if not view.does_answer]
    found += [f"{view.name} was not checked: {view.heard.detail}" for view in mute]
    return (*found, *facts.evidence.problems)


def _check_assignor(views: Sequence[View]) -> Iterator[Finding]:
    for view in views:
        if view.kind in (described.STOCK, described.STRANGER):
            yield finding("FA001", f"this member is {view.kind}", subject=view.name)


def _check_instance_ids(facts: GroupFacts, views: Sequence[View]) -> Iterator[Finding]:
    """Find instance ids that two processes use.

    Either both processes answer, or one replaced the other between the two queries.
    """
    places: defaultdict[str, set[tuple[str, int]]] = defaultdict(set)
    for evidence in filter(None, (facts.evidence, facts.later)):
        for heard in evidence.heard.values():
            status = heard.status
            if status is not None and status.instance_id and status.app == evidence.group.group_id:
                places[status.instance_id].add((status.host, status.pid))
    taken = _taken_over_ids(facts, views)
    for instance_id in sorted(places.keys() | taken.keys()):
        processes = sorted(places[instance_id])
        if len(processes) > 1:
            told = ", ".join(f"process {pid} on {host}" for host, pid in processes)
            yield finding("FA002", f"two processes have it: {told}", subject=instance_id)
        elif instance_id in taken:
            yield finding("FA002", taken[instance_id], subject=instance_id, level=WARNING)


def _taken_over_ids(facts: GroupFacts, views: Sequence[View]) -> dict[str, str]:
    """Return a text for each instance id that a different member has in the later query."""
    if facts.later is None:
        return {}
    before = {view.instance_id: view.member.member_id for view in views if view.instance_id}
    after = {
        view.instance_id: view.member.member_id
        for view in views_of(facts.later)
        if view.instance_id
    }
    return {
        instance_id: "a worker joined with this id between the two queries, and replaced a different worker "
        "or its own former process; repeat the command: if this continues, two workers share the id"
        for instance_id in before.keys() & after.keys()
        if before[instance_id] and after[instance_id] != before[instance_id]
    }


def _check_urls(views: Sequence[View]) -> Iterator[Finding]:
    shared: defaultdict[str, list[str]] = defaultdict(list)
    for view in views:
        if view.member.url:
            shared[view.member.url].append(view.name)
    for url, names in sorted(shared.items()):
        if len(names) > 1:
            yield finding("FA003", f"members {', '.join(names)}", subject=url)


def _check_loopback(views: Sequence[View]) -> Iterator[Finding]:
    for view in views:
        if is_loopback_url(view.url) and not is_loopback(view.member.address):
            yield finding(
                "FA004",
                f"{view.url}, but its broker connection comes from {view.member.address}",
                subject=view.name,
            )


def _times(views: Sequence[View], bounds_s: tuple[float, float] | None) -> Iterator[Finding]:
    alike: defaultdict[Times, list[str]] = defaultdict(list)
    for view in views:
        times = _times_of(view.settings)
        if times is not None:
            alike[times].append(view.name)
    for times, names in alike.items():
        yield from check_times(times, subject=list_names(names), bounds_s=bounds_s)


def _times_of(settings: Mapping[str, str]) -> Times | None:
    try:
        return Times(
            heartbeat_s=float(settings[_HEARTBEAT]),
            session_s=float(settings[_SESSION]),
            poll_s=float(settings[_POLL]) if settings.get(_POLL) else None,
            rebalance_s=float(settings[_REBALANCE]),
        )
    except (KeyError, ValueError):
        return None


def _check_record_size(facts: GroupFacts, views: Sequence[View]) -> Iterator[Finding]:
    taken = sum(view.member.record_bytes for view in views)
    limits = [facts.record_bytes or RECORD_BYTES]
    for view in views:
        said = whole_number(view.settings.get(GROUP_RECORD_BYTES.name, ""))
        if said is not None:
            limits.append(said)
    left_out = [view.name for view in views if view.counters.get("directories_left_out")]
    if taken > NEAR * min(limits):
        yield finding(
            "FA011", f"about {size(taken)} of {size(min(limits))}, with {len(views)} members"
        )
    elif left_out:
        yield finding("FA011", f"{list_names(left_out)} as leader left out the directory of owners")


def _check_differences(report: Report) -> Iterator[Finding]:
    for difference in report.differences:
        if not difference.name.startswith(_VERSION):
            told = "; ".join(
                f"{value or 'not set'} on {list_names(names)}"
                for value, names in sorted(difference.values.items())
            )
            yield finding("FA012", told, subject=difference.name)


def _check_versions(views: Sequence[View], report: Report) -> Iterator[Finding]:
    for name, (first, beyond) in sorted(VERSIONS.items()):
        wrong: defaultdict[str, list[str]] = defaultdict(list)
        for view in views:
            if view.status is not None:
                said = {"faust-streaming": view.status.faust, "aiokafka": view.status.aiokafka}[
                    name
                ]
                if said and not in_range(said, first, beyond):
                    wrong[said].append(view.name)
        for said, names in sorted(wrong.items()):
            yield finding(
                "FA013",
                f"{name} {said}: expected {first} or later, before {beyond}",
                subject=list_names(names),
            )
    for difference in report.differences:
        if difference.name == f"{_VERSION}faust-assigner":
            told = "; ".join(
                f"{value} on {list_names(names)}" for value, names in difference.values.items()
            )
            yield finding("FA013", f"versions differ: {told}", subject="faust-assigner", level=NOTE)


def _check_eager(views: Sequence[View]) -> Iterator[Finding]:
    for view in views:
        if view.kind != described.EAGER:
            continue
        off = [one.name for one in (COOPERATIVE, REPAIRS) if view.settings.get(one.name) == "0"]
        why = f"off: {', '.join(off)}" if off else "its log says why, at its start"
        yield finding("FA014", why, subject=view.name)


def _check_racks(views: Sequence[View]) -> Iterator[Finding]:
    ours = [view for view in views if view.member.said is not None and view.member.said.is_ours]
    racks = {view.member.said.rack_id for view in ours if view.member.said is not None}
    named = racks - {None}
    if not named:
        return
    without = [view.name for view in ours if view.member.said and not view.member.said.rack_id]
    if without:
        yield finding("FA015", f"no rack: {list_names(without)}; the other workers have a rack")
    counts = [whole_number(view.settings.get(_REPLICAS, "")) for view in ours]
    replicas = max((count for count in counts if count is not None), default=None)
    if replicas and len(named) < replicas + 1:
        yield finding("FA015", f"{len(named)} racks for {replicas + 1} copies of each table")


def _check_ledger(views: Sequence[View]) -> Iterator[Finding]:
    off = [
        view.name
        for view in views
        if view.status is not None and not view.status.settings.get(LEDGER.name)
    ]
    if off:
        yield finding("FA017", f"on {list_names(off)}")

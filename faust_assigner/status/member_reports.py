"""One member's part of the report: its state, its partitions with lags, and its unusual settings. No I/O."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from faust_assigner.settings.table import CAPACITY, RACK
from faust_assigner.status.members import View
from faust_assigner.status.report import Copy, Decision, Difference, MemberReport, Partition


def reports_of(
    views: Sequence[View],
    partitions: Sequence[Partition],
    differences: Sequence[Difference],
    decision: Decision | None,
) -> tuple[MemberReport, ...]:
    """Return the report of each member, in the order of ``views``."""
    sources: defaultdict[str, list[int | None]] = defaultdict(list)
    held: defaultdict[tuple[str, bool], list[Copy]] = defaultdict(list)
    for partition in partitions:
        if partition.owner is not None:
            sources[partition.owner].append(partition.lag)
        for copy in partition.copies:
            held[copy.member, copy.is_warmup].append(copy)
    unusual = _unusual_settings(differences)
    return tuple(
        _member_report(
            view,
            sources[view.name],
            held[view.name, False],
            held[view.name, True],
            unusual.get(view.name, {}),
            is_leader=decision is not None and decision.leader == view.name,
        )
        for view in views
    )


def _unusual_settings(differences: Sequence[Difference]) -> dict[str, dict[str, str]]:
    """Return for each member the settings whose values differ from the most frequent value."""
    found: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for difference in differences:
        usual = max(difference.values, key=lambda value: (len(difference.values[value]), value))
        for value, members in difference.values.items():
            if value != usual:
                for member in members:
                    found[member][difference.name] = value
    return found


def _member_report(
    view: View,
    sources: Sequence[int | None],
    standbys: Sequence[Copy],
    warmups: Sequence[Copy],
    unusual: Mapping[str, str],
    *,
    is_leader: bool,
) -> MemberReport:
    member, status = view.member, view.status
    version, capacity, rack = _offered_values(view)
    return MemberReport(
        name=view.name,
        member_id=member.member_id,
        instance_id=view.instance_id,
        client_id=member.client_id,
        address=member.address,
        host=None if status is None else status.host,
        url=view.url,
        version=version,
        kind=view.kind,
        capacity=capacity,
        rack=rack,
        is_leader=is_leader,
        generation=_joined_generation(view),
        answer=view.heard.answer,
        detail=view.heard.detail,
        ready=None if status is None else not status.not_ready and not status.not_live,
        not_ready=() if status is None else status.not_ready,
        not_live=() if status is None else status.not_live,
        is_leaving=_is_leaving(view),
        actives=view.actives,
        standbys=view.standbys,
        warmups=view.warmups,
        lag=known_sum(sources),
        standby_lag=known_sum([copy.lag for copy in standbys]),
        warmup_lag=known_sum([copy.lag for copy in warmups]),
        standby_lag_s=max(
            (one.seconds for one in standbys if one.seconds is not None), default=None
        ),
        restore_remaining_records=None if status is None else status.restore_remaining_records,
        restore_remaining_s=None if status is None else status.restore_remaining_s,
        disk_free_bytes=None if status is None else status.disk_free_bytes,
        disk_size_bytes=None if status is None else status.disk_size_bytes,
        settings=unusual,
    )


def _offered_values(view: View) -> tuple[str, float | None, str | None]:
    """Return version, capacity and rack: from the member's metadata, else from its answer."""
    said = view.member.said
    if said is not None and said.is_ours:
        return said.software, said.capacity, said.rack_id
    version = "" if view.status is None else view.status.software
    capacity = _number_or_none(view.settings.get(CAPACITY.name, ""))
    return version, capacity, view.settings.get(RACK.name) or None


def _joined_generation(view: View) -> int | None:
    known = [one.generation for one in (view.member.given, view.status) if one is not None]
    newest = max(known, default=-1)
    return newest if newest >= 0 else None


def _is_leaving(view: View) -> bool:
    if view.status is not None:
        return view.status.is_leaving
    return view.member.said is not None and view.member.said.leaves


def _number_or_none(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if math.isfinite(found) else None  # JSON has neither NaN nor Infinity


def known_sum(lags: Sequence[int | None]) -> int | None:
    """Return the sum of the known lags; None if no lag is known."""
    known = [lag for lag in lags if lag is not None]
    return sum(known) if known else None

"""Finds the waits in a group: rounds, warm-ups, hand-overs, partitions that stand still. No I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from faust_assigner.clients.group_views import as_ranges
from faust_assigner.status.described import DescribedGroup
from faust_assigner.status.evidence import Place
from faust_assigner.status.members import View, owners_of
from faust_assigner.status.report import Copy, WaitReport
from faust_assigner.wire.worker_status import REASONS

#: The settings with the time limits that the texts about waits show.
_SESSION = "broker_session_timeout"
_REBALANCE = "broker_rebalance_timeout"


def waits_of(
    group: DescribedGroup, views: Sequence[View], copies: Mapping[Place, Sequence[Copy]]
) -> tuple[WaitReport, ...]:
    """Return all waits; the group's own wait comes first."""
    return (
        *_round_waits(group, views),
        *_silent_worker_waits(group, views),
        *_standstill_waits(views),
        *_warmup_waits(views, copies),
        *_promise_waits(views),
        *_worker_waits(views),
    )


def _round_waits(group: DescribedGroup, views: Sequence[View]) -> Iterator[WaitReport]:
    if not group.is_rebalancing:
        return
    ages = [view.status.round_age_s for view in views if view.status is not None]
    since = max((age for age in ages if age is not None), default=None)
    if group.state == "CompletingRebalance":
        text = "a rebalance is in progress: the members wait for the leader's assignment"
        yield WaitReport(kind="rebalance", member=None, text=text, seconds=since)
        return
    late = [view.name for view in views if view.is_lost]
    busy = [
        view.name for view in views if view.status is not None and not view.status.is_rebalancing
    ]
    parts = []
    if late:
        parts.append(f"{', '.join(late)} ({'does' if len(late) == 1 else 'do'} not answer)")
    if busy:
        parts.append(f"{', '.join(busy)} (answers, but has not begun to rejoin)")
    limit = _largest_setting(views, _REBALANCE)
    most = f", at most {limit:g} s (broker_rebalance_timeout)" if limit is not None else ""
    whom = " and ".join(parts) or "members to rejoin"
    yield WaitReport(
        kind="rebalance",
        member=None,
        text=f"a rebalance is in progress: the group waits for {whom}{most}",
        seconds=since,
    )


def _silent_worker_waits(group: DescribedGroup, views: Sequence[View]) -> Iterator[WaitReport]:
    limit = _largest_setting(views, _SESSION)
    for view in views:
        if view.is_lost and group.is_settled:
            after = "" if limit is None else f" ({limit:g} s)"
            yield WaitReport(
                kind="answer",
                member=view.name,
                text=f"does not answer: {view.heard.detail}. Without heartbeats the "
                f"group removes it after its session timeout{after}",
            )


def _largest_setting(views: Sequence[View], setting: str) -> float | None:
    values = []
    for view in views:
        try:
            values.append(float(view.status.settings[setting]) if view.status else 0.0)
        except (KeyError, ValueError):
            continue
    return max((value for value in values if value), default=None)


def _standstill_waits(views: Sequence[View]) -> Iterator[WaitReport]:
    for view in views:
        by_reason: defaultdict[str, list[tuple[Place, float]]] = defaultdict(list)
        for one in view.status.standing if view.status is not None else ():
            by_reason[one.reason].append(((one.topic, one.partition), one.seconds))
        for reason, found in sorted(by_reason.items()):
            places = "; ".join(as_ranges(place for place, _ in found))
            yield WaitReport(
                kind="standing",
                member=view.name,
                text=f"{places} not processed: {REASONS.get(reason, reason)}{_restore(view, reason)}",
                seconds=max(seconds for _, seconds in found),
            )


def _restore(view: View, reason: str) -> str:
    status = view.status
    if reason != "restoring" or status is None or not status.restore_remaining_records:
        return ""
    eta = status.restore_remaining_s
    end = "no progress in the last 10 s" if eta is None else f"about {eta:.0f} s left"
    return f" ({status.restore_remaining_records:,} records remain, {end})"


def _warmup_waits(
    views: Sequence[View], copies: Mapping[Place, Sequence[Copy]]
) -> Iterator[WaitReport]:
    owners = owners_of(views)
    for view in views:
        by_owner: defaultdict[str | None, list[Place]] = defaultdict(list)
        for topic, numbers in view.warmups.items():
            for number in numbers:
                by_owner[owners.get((topic, number))].append((topic, number))
        for owner, places in sorted(by_owner.items(), key=lambda item: item[0] or ""):
            lags = [
                copy.lag
                for place in places
                for copy in copies.get(place, ())
                if copy.member == view.name and copy.lag is not None
            ]
            behind = f" ({sum(lags):,} records behind)" if lags else ""
            then = f"to take over from {owner}" if owner else "to become the owner"
            yield WaitReport(
                kind="warm-up",
                member=view.name,
                text=f"catches up on {'; '.join(as_ranges(places))}{behind} {then}",
            )


def _promise_waits(views: Sequence[View]) -> Iterator[WaitReport]:
    for view in views:
        given = view.member.given if view.member.given is not None else view.status
        promised = [
            (topic, number)
            for topic, numbers in (given.promised if given is not None else {}).items()
            for number in numbers
        ]
        if promised:
            yield WaitReport(
                kind="hand-over",
                member=view.name,
                text=f"gets {'; '.join(as_ranges(promised))} after their owners have revoked them",
            )


def _worker_waits(views: Sequence[View]) -> Iterator[WaitReport]:
    for view in views:
        status = view.status
        if status is None:
            continue
        if status.is_leaving:
            text = "stops, and hands its partitions over"
            yield WaitReport(kind="leaving", member=view.name, text=text)
        for wait in status.waits:
            yield WaitReport(
                kind="step",
                member=view.name,
                text=f"{wait.what} waits for {wait.step}",
                seconds=wait.seconds,
            )

"""Converts the result of a query of a group to the leader's view of the group in its next round. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from faust_assigner.app.rebalance.table_facts import TableFacts
from faust_assigner.app.rebalance.warming import SHORT
from faust_assigner.clients.group_views import as_ranges
from faust_assigner.deploy.fleet import Fleet, NotKnown, Worker
from faust_assigner.settings import table
from faust_assigner.settings.schema import Setting
from faust_assigner.status.build import build, changelogs_of
from faust_assigner.status.evidence import Evidence, Place
from faust_assigner.status.members import View, join_sorted, views_of
from faust_assigner.status.report import Report
from faust_assigner.warmup import WarmupPolicy
from faust_assigner.wire.documents import whole_number


@dataclass(frozen=True, kw_only=True)
class Seen:
    """The result of one query of the group: the status, every member, and the planner's input.

    ``fleet`` is None if the next round cannot be planned; ``missing`` has the reason. ``bytes_of`` is the
    size of each changelog partition on disk, as far as workers report it.
    """

    status: Report
    views: tuple[View, ...]
    fleet: Fleet | None
    missing: str
    bytes_of: Mapping[Place, int]

    @property
    def settings(self) -> Mapping[str, str]:
        """The leader's settings; without its answer, any worker's settings."""
        return _settings(self.status, self.views)


def read_evidence(evidence: Evidence) -> Seen:
    """Convert the result of a query. Invalid bytes from a member never raise."""
    views, status = views_of(evidence), build(evidence)
    fleet, missing = None, ""
    try:
        fleet = _read_fleet(evidence, views, status)
    except NotKnown as error:
        missing = str(error)
    return Seen(
        status=status, views=views, fleet=fleet, missing=missing, bytes_of=_partition_bytes(views)
    )


def _settings(status: Report, views: Sequence[View]) -> Mapping[str, str]:
    leaders = {member.name for member in status.members if member.is_leader}
    said = {view.name: view.status.settings for view in views if view.status is not None}
    for name in sorted(said, key=lambda name: (name not in leaders, name)):
        return said[name]
    return {}


def _read_fleet(evidence: Evidence, views: Sequence[View], status: Report) -> Fleet:
    """Return the group as input of the planner. Raises NotKnown."""
    settings = _settings(status, views)
    _check_known(evidence, views, settings)
    everywhere = {
        topic: full
        for view in views
        if view.member.said is not None
        for topic, full in view.member.said.globals_.items()
    }
    facts = TableFacts(changelogs_of(evidence, views), everywhere)
    lags = _lags_of(status)
    fleet = Fleet(
        group_id=evidence.group.group_id,
        workers={
            view.name: _read_worker(view, lags.get(view.name, {}), facts, evidence.ends)
            for view in views
        },
        partitions=_counts(evidence.ends),
        facts=facts,
        replicas=_number_setting(settings, "table_standby_replicas", 0),
        policy={
            is_cooperative: policy_of(settings, is_cooperative) for is_cooperative in (False, True)
        },
        generation=max(view.member.given.generation for view in views if view.member.given),
        ends=evidence.ends,
    )
    return replace(fleet, owner=fleet.owners())


def _check_known(evidence: Evidence, views: Sequence[View], settings: Mapping[str, str]) -> None:
    """Raise NotKnown if the next round cannot be planned from this query."""
    if not views:
        raise NotKnown("the group has no members")
    if not evidence.group.is_settled:
        raise NotKnown(f"the group is in state {evidence.group.state}, a rebalance is in progress")
    others = [
        view.name for view in views if view.member.said is None or not view.member.said.is_ours
    ]
    if others:
        raise NotKnown(f"members without this package: {join_sorted(others)}")
    unread = [view.name for view in views if view.member.given is None]
    if unread:
        raise NotKnown(f"the assignments of these members are unreadable: {join_sorted(unread)}")
    if "table_standby_replicas" not in settings:
        raise NotKnown("no worker answered, so the number of standbys is unknown")
    if evidence.leaderless:
        places = "; ".join(as_ranges(evidence.leaderless))
        raise NotKnown(f"partitions without a leader: {places}")
    if not evidence.ends:
        raise NotKnown("the brokers did not return end offsets")


def _lags_of(status: Report) -> dict[str, dict[Place, int]]:
    """Return member -> changelog partition -> the number of records that its copy lacks."""
    lags: dict[str, dict[Place, int]] = {}
    for one in status.partitions:
        for copy in one.copies:
            if copy.lag is not None:
                lags.setdefault(copy.member, {})[one.topic, one.partition] = copy.lag
    return lags


def _counts(ends: Iterable[Place]) -> dict[str, int]:
    """Return topic -> the number of its partitions."""
    counts: dict[str, int] = {}
    for topic, number in ends:
        counts[topic] = max(counts.get(topic, 0), number + 1)
    return counts


def _read_worker(
    view: View, lags: Mapping[Place, int], facts: TableFacts, ends: Mapping[Place, int]
) -> Worker:
    member = view.member
    said, given = member.said, member.given
    assert said is not None
    assert given is not None
    owned = {(t, n) for t, runs in member.actives.items() for n in runs if t in facts.stateful}
    positions = {place: ends[place] for place in owned if place in ends}
    positions |= {place: max(0, ends[place] - lag) for place, lag in lags.items() if place in ends}
    data = replace(
        said,
        actives=member.actives,
        standbys={t: runs for t, runs in member.copies.items() if t in facts.stateful},
        on_disk={},
        awaited=given.awaited,
        promised=given.promised,
        among=given.among,
        group_ids=given.group_ids,
        generation=given.generation,
        instance_id=view.instance_id,
        holds=said.cooperative,
        leaves=False,
    )
    return Worker(
        name=view.name,
        member_id=member.member_id,
        topics=tuple(sorted(member.topics)),
        data=data,
        positions=positions,
    )


def policy_of(settings: Mapping[str, str], is_cooperative: bool) -> WarmupPolicy | None:
    """Return the warm-up policy from a worker's settings. Raises NotKnown."""

    def number(setting: Setting[int] | Setting[bool]) -> int:
        return _number_setting(settings, setting.name, int(setting.default))

    if not number(table.WARMUPS) or settings.get(table.FOLLOW_UP_S.name) == "0":
        return None
    lag = number(table.ACCEPTABLE_RECOVERY_LAG)
    return WarmupPolicy(
        acceptable_recovery_lag=lag,
        acceptable_from_nothing=_number_setting(
            settings, table.ACCEPTABLE_FROM_NOTHING.name, SHORT if is_cooperative else lag
        ),
        max_per_member=number(table.MAX_WARMUPS),
        max_per_group=number(table.MAX_GROUP_WARMUPS),
    )


def _number_setting(settings: Mapping[str, str], name: str, default: int) -> int:
    try:
        return int(settings.get(name, "") or default)
    except ValueError:
        raise NotKnown(
            f"a worker reports {name}={settings[name][:20]!r}, not a whole number"
        ) from None


def _partition_bytes(views: Sequence[View]) -> dict[Place, int]:
    """Return the largest size that any worker reports: owner and copies compact at different times."""
    found: dict[Place, int] = {}
    for view in views:
        for one in view.status.tables if view.status is not None else ():
            for number, size in one.bytes.items():
                if (partition := whole_number(number)) is not None:
                    place = one.changelog, partition
                    found[place] = max(found.get(place, 0), size)
    return found

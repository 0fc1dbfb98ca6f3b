"""Predict the effect of one change to one group: moves, costs, and load per rack.

Used for ``simulate --add 4``, ``--remove MEMBER`` and ``--lose-rack az-b``. The planner plans the group of
the newest decision (or a generated group) with the change, once for each number of standbys. The functions
are pure.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from faust_assigner.errors import ConfigError
from faust_assigner.model import Member
from faust_assigner.pipeline.ledgers.current import GroupState
from faust_assigner.pipeline.weights.rates import NOMINAL_RECORD_BYTES, PartitionRate, records_kept
from faust_assigner.planner import Plan, plan
from faust_assigner.simulation.fleet import Costs, Scenario

NO_RACK = "(none)"


@dataclass(frozen=True)
class Change:
    """The number of workers to add, the members to remove, the rack to lose."""

    add: int = 0
    remove: tuple[str, ...] = ()
    lose_rack: str | None = None


@dataclass(frozen=True)
class Load:
    """Per (topic, partition): arriving records/s, and the records and bytes in the changelog."""

    rates: Mapping[tuple[str, int], float]
    records: Mapping[tuple[str, int], float]
    bytes_kept: Mapping[tuple[str, int], float]


def load_of(rates: Sequence[PartitionRate]) -> Load:
    """Return the load measured by samples."""
    keys = [(rate.topic, rate.partition) for rate in rates]
    return Load(
        {key: rate.arrived_per_s for key, rate in zip(keys, rates, strict=True)},
        {key: records_kept(rate) for key, rate in zip(keys, rates, strict=True)},
        {key: float(rate.state_bytes) for key, rate in zip(keys, rates, strict=True)},
    )


def generated(scenario: Scenario, replicas: int) -> tuple[GroupState, Load]:
    """Return a generated fleet and its load; its assignment has no history and ``replicas`` standbys."""
    topics = sorted(scenario.partitions)
    starters = [worker for worker in scenario.workers if worker.member_id in scenario.start]
    fresh = [Member(worker.member_id, topics, rack_id=worker.rack_id) for worker in starters]
    settled = plan(fresh, scenario.partitions, replicas=replicas, changelogs=scenario.changelogs)
    members = tuple(
        replace(
            member,
            actives=settled.actives(member.member_id),
            standbys=settled.standbys(member.member_id),
            generation=1,
        )
        for member in fresh
    )
    rates, records = {}, {}
    for group, start in zip(scenario.groups, scenario.offsets.tolist(), strict=False):
        for number in range(group.partitions):
            rates[group.topic, number] = float(scenario.rates[start + number])
            if group.changelog is not None:
                records[group.changelog, number] = float(scenario.records[start + number])
    current = GroupState(scenario.group_id, "", members, scenario.partitions, scenario.changelogs)
    return current, Load(
        rates, records, {key: kept * NOMINAL_RECORD_BYTES for key, kept in records.items()}
    )


def what_if(
    current: GroupState,
    change: Change,
    load: Load,
    *,
    replicas: Sequence[int],
    costs: Costs | None = None,
) -> list[dict[str, object]]:
    """Return one row per number of standbys, see :func:`_row`.

    Raises ConfigError if the change names an unknown member or rack, or if no member would remain.
    """
    members = changed(current.members, change)
    return [_row(current, members, count, load, costs or Costs()) for count in replicas]


def changed(members: Sequence[Member], change: Change) -> tuple[Member, ...]:
    """Return the members after ``change``; each new member joins the rack with the fewest members."""
    racks = sorted({member.rack_id for member in members if member.rack_id is not None})
    if change.lose_rack is not None and change.lose_rack not in racks:
        known = f"the racks are {', '.join(racks)}" if racks else "no member has a rack"
        raise ConfigError(f"no member is in rack {change.lose_rack!r}; {known}")
    unknown = sorted(set(change.remove) - {name for member in members for name in _names(member)})
    if unknown:
        known = ", ".join(sorted(_names(member)[0] for member in members))
        raise ConfigError(f"no member is called {unknown[0]!r}; there are: {known}")
    left = [
        member
        for member in members
        if not set(_names(member)) & set(change.remove)
        and (change.lose_rack is None or member.rack_id != change.lose_rack)
    ]
    topics = members[0].topics if members else ()
    crowd = Counter(member.rack_id for member in left)
    for number in range(change.add):
        rack = min(crowd, key=lambda name: (crowd[name], str(name)), default=None)
        crowd[rack] += 1
        left.append(Member(f"new-{number + 1}", topics, rack_id=rack))
    if not left:
        raise ConfigError("no member would be left in the group")
    return tuple(left)


def _names(member: Member) -> tuple[str, ...]:
    """Return the names that ``--remove`` accepts: the member's instance id, if any, and its member id."""
    return (
        (member.member_id,)
        if member.instance_id is None
        else (member.instance_id, member.member_id)
    )


@dataclass
class _Tally:
    """The cost of the change, summed over all tasks."""

    moves: int = 0
    cold: int = 0
    bytes_to_restore: float = 0.0
    colocated: int = 0
    actives: Counter[str] = field(default_factory=Counter)
    standbys: Counter[str] = field(default_factory=Counter)
    replay: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    refill: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))


def _row(
    current: GroupState, members: Sequence[Member], replicas: int, load: Load, costs: Costs
) -> dict[str, object]:
    """Return the effect of the change with ``replicas`` standbys.

    * ``moves``: tasks with a new owner; ``cold``: moved stateful tasks whose new owner has no copy;
    * ``bytes_to_restore``: bytes that new owners and new standbys restore;
    * ``stopped_s``: seconds until the slowest worker processes again;
    * ``restored_s``: seconds until the slowest worker has replayed its tasks and its standbys;
    * ``peak_lag``: records that wait in the worst partition when its owner processes again.
    """
    made = plan(
        members,
        current.partitions,
        replicas=replicas,
        changelogs=current.changelogs,
        weightless=current.weightless,
    )
    racks_of = {member.member_id: member.rack_id or NO_RACK for member in members}
    tally = _tally(current, made, load, racks_of)
    racks = sorted(set(racks_of.values()))
    return {
        "standbys": replicas,
        "members": len(members),
        "moves": tally.moves,
        "warm": tally.moves - tally.cold,
        "cold": tally.cold,
        "bytes_to_restore": int(tally.bytes_to_restore),
        **_waits(made, tally, load, costs),
        "idle_members": sum(not made.actives(name) for name in made.member_ids),
        "actives_per_rack": {rack: tally.actives[rack] for rack in racks},
        "standbys_per_rack": {rack: tally.standbys[rack] for rack in racks},
        "colocated_pairs": tally.colocated,
    }


def _waits(made: Plan, tally: _Tally, load: Load, costs: Costs) -> dict[str, object]:
    """Return ``stopped_s``, ``restored_s`` and ``peak_lag`` of :func:`_row`."""
    speed = costs.replay_records_per_s
    stopped = {
        name: costs.rebalance_pause_s + costs.warm_takeover_s + tally.replay[name] / speed
        for name in made.member_ids
    }
    waiting = [
        load.rates.get((topic, number), 0.0) * stopped[made.member_ids[int(owner[number])]]
        for group, owner in zip(made.groups, made.owner, strict=True)
        for topic in group.topics
        for number in range(group.partitions)
    ]
    restored = max(tally.replay[name] + tally.refill[name] for name in made.member_ids)
    return {
        "stopped_s": max(stopped.values()),
        "restored_s": restored / speed,
        "peak_lag": int(max(waiting, default=0.0)),
    }


def _tally(current: GroupState, made: Plan, load: Load, racks: Mapping[str, str]) -> _Tally:
    """Compare each task's previous and new owner and standbys; sum the state that must be restored."""
    owners = _by_partition(current.members, "actives")
    spares = _by_partition(current.members, "standbys")
    tally = _Tally()
    for group, owner, standby in zip(made.groups, made.owner, made.standby, strict=True):
        for number in range(group.partitions):
            keys = [(topic, number) for topic in group.topics]
            kept = [(topic, number) for topic in group.changelogs]
            had = {name for key in keys for name in owners.get(key, ())}
            holders = had | {name for key in kept for name in spares.get(key, ())}
            new = made.member_ids[int(owner[number])]
            copies = [made.member_ids[index] for index in standby[number].tolist() if index >= 0]
            moved = bool(had) and new not in had
            tally.moves += moved
            tally.cold += moved and group.is_stateful and new not in holders
            tally.actives[racks[new]] += 1
            for name in copies:
                tally.standbys[racks[name]] += 1
                tally.colocated += racks[name] == racks[new] != NO_RACK
            for name, missing in ((new, tally.replay), *((name, tally.refill) for name in copies)):
                if name not in holders:
                    missing[name] += sum(load.records.get(key, 0.0) for key in kept)
                    tally.bytes_to_restore += sum(load.bytes_kept.get(key, 0.0) for key in kept)
    return tally


def _by_partition(members: Sequence[Member], role: str) -> dict[tuple[str, int], set[str]]:
    """Return (topic, partition) -> the members that claim the partition in ``role``."""
    found: dict[tuple[str, int], set[str]] = {}
    for member in members:
        for topic, numbers in getattr(member, role).items():
            for number in numbers:
                found.setdefault((topic, int(number)), set()).add(member.member_id)
    return found

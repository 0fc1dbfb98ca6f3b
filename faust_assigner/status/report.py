"""The report of ``faust-assigner status``. ``schema.json`` beside this file describes its JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: The version of the report; a later version only adds keys.
VERSION = 1

#: Topic -> partition numbers, ascending.
Numbers = Mapping[str, tuple[int, ...]]

#: The outcomes of querying a worker, as words in the report.
ANSWERED, SILENT, UNREACHABLE, OTHER, UNREADABLE, NOT_ASKED = (
    "answered",
    "silent",
    "unreachable",
    "another worker",
    "unreadable",
    "not asked",
)


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The last round: its leader, time, reason, and results.

    ``leader`` is a member's name, None if the leader has left or is unknown. ``completes`` is the
    trigger of the first round if this round is the second of two, else "". ``joined`` and ``left``
    are URLs; they are empty unless the leader reported the round. ``at`` is in seconds since 1970.
    """

    decision_id: str
    generation: int
    leader: str | None
    at: int | None
    trigger: str
    completes: str
    joined: tuple[str, ...]
    left: tuple[str, ...]
    members: int
    tasks: int
    moved: int
    cold: int
    off_target: int
    warming: int
    is_planned: bool


@dataclass(frozen=True, kw_only=True)
class Standstill:
    """The reason and the duration of a source partition's standstill."""

    reason: str
    seconds: float


# Not frozen: a report has tens of thousands of copies, and frozen objects take three times as long.
@dataclass(kw_only=True)
class Copy:
    """A standby or warm-up of a changelog partition.

    ``lag`` is in records, None if unknown. If ``is_measured`` is False, the worker reported no lag, and
    ``lag`` is an upper bound: the missing records at the member's join plus the records since.
    """

    member: str
    is_warmup: bool
    lag: int | None
    seconds: float | None
    is_measured: bool


@dataclass(kw_only=True)
class Partition:
    """A partition. ``owner`` is a member's name; ``lag`` applies to a source partition, in records."""

    topic: str
    partition: int
    is_changelog: bool
    owner: str | None
    committed: int | None
    end: int | None
    lag: int | None
    standing: Standstill | None
    copies: tuple[Copy, ...]


@dataclass(frozen=True, kw_only=True)
class MemberReport:
    """A member. ``name`` is unique in the report.

    ``answer`` is an outcome such as ``ANSWERED``, and ``detail`` is its reason. ``lag`` is the sum
    over the member's source partitions; ``standby_lag`` and ``warmup_lag`` are the sums over its
    copies. These lags are in records, None if no partition's lag is known. ``settings`` has the
    settings whose values most workers do not have.
    """

    name: str
    member_id: str
    instance_id: str | None
    client_id: str
    address: str
    host: str | None
    url: str
    version: str
    kind: str
    capacity: float | None
    rack: str | None
    is_leader: bool
    generation: int | None
    answer: str
    detail: str
    ready: bool | None
    not_ready: tuple[str, ...]
    not_live: tuple[str, ...]
    is_leaving: bool
    actives: Numbers
    standbys: Numbers
    warmups: Numbers
    lag: int | None
    standby_lag: int | None
    warmup_lag: int | None
    standby_lag_s: float | None
    restore_remaining_records: int | None
    restore_remaining_s: float | None
    disk_free_bytes: int | None
    disk_size_bytes: int | None
    settings: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class WaitReport:
    """A wait. ``member`` is the name of the waiting member, None for the group."""

    kind: str
    member: str | None
    text: str
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A setting or version that differs between workers.

    ``values`` maps each value to the names of the members with this value.
    """

    name: str
    values: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class Totals:
    """Sums over the whole group; lags are in records, over the partitions with a known lag."""

    members: int
    answered: int
    ready: int
    active_partitions: int
    standby_partitions: int
    warmup_partitions: int
    standing_partitions: int
    lag: int
    standby_lag: int
    off_target: int | None


@dataclass(frozen=True, kw_only=True)
class Report:
    """A group at the time ``taken_at``, in seconds since 1970.

    ``rounds`` is ``cooperative``, ``eager`` (a rebalance stops all workers) or ``unknown``. ``problems`` are
    sentences about missing data.
    """

    group: str
    state: str
    is_settled: bool
    rounds: str
    coordinator: str
    taken_at: float
    decision: Decision | None
    totals: Totals
    members: tuple[MemberReport, ...]
    partitions: tuple[Partition, ...]
    waits: tuple[WaitReport, ...]
    differences: tuple[Difference, ...]
    problems: tuple[str, ...] = field(default=())
    version: int = VERSION

"""The report of ``faust-assigner status``. As JSON it is described by ``schema.json`` beside this file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: Of the report; a later version only adds keys.
VERSION = 1

#: Topic -> partition numbers, ascending.
Numbers = Mapping[str, tuple[int, ...]]

#: Whether a worker answered: the report's words, and what each means.
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
    """The last round: which leader decided it, when, why, and what became of the tasks.

    ``leader`` is a member's name, None where it is not in the group any more or where nobody knows it.
    ``completes`` is the trigger of an earlier round that left something to this one, else "". ``joined``
    and ``left`` are URLs; only the leader knows them. ``at`` is in seconds since 1970.
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
    """Why a source partition is not processed, and for how long."""

    reason: str
    seconds: float


# A report has tens of thousands of copies and partitions, and a frozen one takes three times as long to make.
@dataclass(kw_only=True)
class Copy:
    """A standby or warm-up of a changelog partition.

    ``lag`` is in records, None where nothing is known of it. Where ``is_measured`` is False the
    worker did not tell, and its lag is at most the one named: what it lacked when it joined, and
    what came since.
    """

    member: str
    is_warmup: bool
    lag: int | None
    seconds: float | None
    is_measured: bool


@dataclass(kw_only=True)
class Partition:
    """One partition. ``owner`` is a member's name; ``lag`` is of a source partition, in records."""

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
    """One member. ``name`` is unique in the report.

    ``answer`` is one of the words above, ``detail`` the reason. ``lag`` is that of its
    source partitions, ``standby_lag`` and ``warmup_lag`` those of its copies: sums in records, None
    where no part is known. ``settings`` are those in which it differs from most of the others.
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
class Waiting:
    """A wait. ``member`` is the name of the member that waits, None for the group."""

    kind: str
    member: str | None
    text: str
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A setting or version in which workers differ: value -> names of the members that have it."""

    name: str
    values: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class Totals:
    """Of the whole group; lags are in records, over the partitions where they are known."""

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
    """A group at one moment, ``taken_at`` in seconds since 1970.

    ``rounds`` is ``cooperative``, ``eager`` (a rebalance stops everybody) or ``unknown``. ``problems`` are
    sentences about what could not be found out.
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
    waits: tuple[Waiting, ...]
    differences: tuple[Difference, ...]
    problems: tuple[str, ...] = field(default=())
    version: int = VERSION

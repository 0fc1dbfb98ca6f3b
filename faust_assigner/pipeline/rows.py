"""Typed rows of the ledger's tables and of the history; :mod:`faust_assigner.ledger` defines the columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NotRequired, TypeAlias, TypedDict, TypeVar

Key = TypeVar("Key")
AnyRow = TypeVar("AnyRow")
#: The rows of a table in a report.
Rows: TypeAlias = Sequence[Mapping[str, Any]]

#: Spark returns times as integers since this time, because Spark's timestamps have no time zone.
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: The suffix of a changelog topic's name.
CHANGELOG_SUFFIX = "-changelog"


class MemberRow(TypedDict):
    """A member in a decision; ledgers of older writers have no ``instance_id``."""

    member_id: str
    rack: str | None
    capacity: float
    epoch: int
    instance_id: NotRequired[str | None]


class DecisionRow(TypedDict):
    """A row of the table ``decision``; the history adds ``longest_recovery_s``.

    A replay on Spark collects only the columns that it needs, so some columns are ``NotRequired``.
    """

    group_id: str
    decision_id: str
    ts: datetime
    generation: NotRequired[int]
    trigger: str
    policy: NotRequired[str]
    config: dict[str, str]
    members: list[MemberRow]
    solve_ms: NotRequired[float]
    session_timeout_s: NotRequired[float | None]
    longest_recovery_s: NotRequired[float | None]


class PlacementRow(TypedDict):
    """A row of the table ``assignment``: one owner or holder of a copy of one partition."""

    group_id: str
    decision_id: str
    topic: str
    partition: int
    role: str
    member_id: str
    prev_member_id: str | None
    moved: bool
    standby_hit: bool
    cold: bool


class RecoveryRow(TypedDict):
    """A row of the table ``recovery``: the restore of one partition on one member."""

    group_id: str
    decision_id: str
    topic: str
    partition: int
    member_id: str
    source: str
    started: datetime
    ended: datetime
    start_offset: int
    end_offset: int
    records: int
    bytes: int


class SampleRow(TypedDict):
    """A row of the table ``partition_sample``: a worker's measurement of one partition."""

    group_id: str
    ts: datetime
    topic: str
    partition: int
    end_offset: int
    committed_offset: int
    bytes_in: int
    records_in: int
    cpu_ms: float
    state_bytes: int


class MoveRow(PlacementRow):
    """A row of the table ``moves``: a placement with a new owner, and the cause of the move."""

    ts: datetime
    cause: str


def grouped(rows: Iterable[AnyRow], key: Callable[[AnyRow], Key]) -> dict[Key, list[AnyRow]]:
    """Return the rows of each key, in their order; keys are in the order of their first row.

    >>> grouped(["ab", "c", "ad"], lambda row: row[0])
    {'a': ['ab', 'ad'], 'c': ['c']}
    """
    found: dict[Key, list[AnyRow]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found

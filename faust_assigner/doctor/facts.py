"""The doctor's facts about an app and about a running group, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from faust_assigner.doctor.topics import TopicFacts
from faust_assigner.status.evidence import Evidence


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table. ``expires_s`` is None without windows, or if windows never expire.

    ``is_set``: it is a table of sets. ``uses_partitioner``: its changelog may have any number of
    partitions.
    """

    name: str
    changelog: str
    is_global: bool = False
    is_windowed: bool = False
    is_set: bool = False
    uses_partitioner: bool = False
    expires_s: float | None = None
    partitions: int | None = None
    in_memory: bool = False


@dataclass(frozen=True, kw_only=True)
class AppFacts:
    """An app's setup on this machine. Times are in seconds, disk space in bytes.

    ``sources`` are the consumed topics, each with the partition count in the code, or None.
    ``stores_bytes`` are the sizes of the table partitions on this machine's disk.
    """

    app_id: str
    assignor: str = ""
    is_ours: bool = True
    has_fixup: bool = True
    is_our_driver: bool = True
    brokers: tuple[str, ...] = ()
    url: str = ""
    instance_id: str | None = None
    environment: tuple[str, ...] = ()
    host: str = ""
    tables: tuple[Table, ...] = ()
    sources: Mapping[str, int | None] = field(default_factory=dict)
    default_partitions: int = 8
    wrong_settings: tuple[str, ...] = ()
    misfits: tuple[str, ...] = ()
    heartbeat_s: float = 3.0
    session_s: float = 60.0
    poll_s: float | None = None
    rebalance_s: float = 60.0
    leave_s: float = 8.0
    replicas: int = 1
    rack: str | None = None
    is_cooperative: bool = True
    has_repairs: bool = True
    ledger: str | None = None
    disk_free_bytes: int | None = None
    stores_bytes: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class GroupFacts:
    """A group's state (``evidence``), and its ``later`` state, None if there was only one query.

    ``topics`` are the group's topics in the cluster. ``record_bytes`` is the brokers' limit for
    the group's record, and ``session_bounds_s`` their limits for sessions; None if not reported.
    """

    evidence: Evidence
    later: Evidence | None = None
    topics: Mapping[str, TopicFacts] = field(default_factory=dict)
    record_bytes: int | None = None
    session_bounds_s: tuple[float, float] | None = None

"""The raw data of a query of a group: the coordinator's description, the workers' answers, offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from faust_assigner.status.described import DescribedGroup
from faust_assigner.wire.worker_status import Peer, WorkerStatus

#: (topic, partition).
Place = tuple[str, int]


@dataclass(frozen=True, kw_only=True)
class Heard:
    """The outcome of querying a URL.

    ``answer`` is a word of :mod:`faust_assigner.status.report`, and ``detail`` is the reason.
    """

    answer: str
    detail: str = ""
    status: WorkerStatus | None = None


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The data of one query of a group.

    ``heard`` has the outcomes by URL. ``peers`` are the members of the last round, as a worker
    lists them; workers are asked for this list only during a rebalance. ``urls`` maps member ids to
    URLs from earlier queries.
    ``committed`` and ``ends`` are offsets; ``problems`` are sentences about missing data. Partitions that
    are ``leaderless`` have no end offset.
    ``taken_at`` is in seconds since 1970.
    """

    group: DescribedGroup
    heard: Mapping[str, Heard] = field(default_factory=dict)
    peers: Sequence[Peer] = ()
    urls: Mapping[str, str] = field(default_factory=dict)
    committed: Mapping[Place, int] = field(default_factory=dict)
    ends: Mapping[Place, int] = field(default_factory=dict)
    leaderless: frozenset[Place] = frozenset()
    taken_at: float = 0.0
    problems: tuple[str, ...] = ()

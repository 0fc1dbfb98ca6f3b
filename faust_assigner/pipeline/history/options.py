"""The options of the ``history`` command."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from faust_assigner.pipeline.history.lakehouse import PARQUET
from faust_assigner.pipeline.history.quality import Gates
from faust_assigner.pipeline.ledgers.period import Period
from faust_assigner.pipeline.ledgers.refusals import Tolerance


@dataclass(frozen=True)
class HistoryOptions:
    """The options of ``history``; with ``every_s`` the command repeats its visit until it is stopped."""

    ledgers: tuple[str, ...]
    out: str
    #: Read only the lines that were added since the last run with this option.
    stream: bool = False
    every_s: float | None = None
    connector: str = "auto"
    #: Whether a ledger without accepted lines is an error. None: only if a history exists already, or if
    #: lines were refused.
    fail_if_empty: bool | None = None
    max_refused: Tolerance = field(default_factory=Tolerance)
    #: Kafka's client properties, for ledgers that are topics.
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    period: Period = field(default_factory=Period)
    #: Maven packages for the session, in the notation of ``spark-submit``.
    packages: tuple[str, ...] = ()
    #: The limits that the written history must meet; the report contains the result of each limit.
    gates: Gates = field(default_factory=Gates)
    #: The format of the published tables: ``parquet``, ``delta`` or ``iceberg``.
    format: str = PARQUET

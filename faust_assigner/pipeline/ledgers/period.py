"""``--since`` and ``--until``: a period of a ledger, and the files that may hold lines of the period.

Workers write their files in order of time. So a file that was last changed before the period contains no
line of the period; nor does a file whose first line is later than the period, unless the file was last
changed before the time of this line. Files that were concatenated in another order break this rule; pass the
parts instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

from faust_assigner.errors import ConfigError
from faust_assigner.ledger import Row, parse
from faust_assigner.pipeline.ledgers.chunks import Chunk, LedgerDamaged, read_lines
from faust_assigner.pipeline.ledgers.files import LedgerFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Table -> the column with a row's time; a row of ``assignment`` has the time of its decision.
MOMENT = {"decision": "ts", "recovery": "started", "partition_sample": "ts"}
#: The tolerance in the choice of files, because clocks differ and rows wait to be written.
SLACK = timedelta(hours=1)
#: The bounds of a period; both leave room for :data:`SLACK` in Python's calendar.
FIRST, LAST = datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)
_AGO = re.compile(r"(\d{1,6})(m|h|d)")
_UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}


@dataclass(frozen=True)
class Period:
    """The times from ``since`` (included) to ``until`` (excluded); None means unbounded."""

    since: datetime | None = None
    until: datetime | None = None

    @classmethod
    def parse(cls, since: str | None, until: str | None, *, now: datetime) -> Period:
        """Parse two bounds: a day (``2026-11-21``), a time (``2026-11-21T20:00``) or an age (``36h``).

        A time without an offset is UTC. A time beyond :data:`FIRST` or :data:`LAST` is that time.
        Raises ConfigError for any other text, and for an empty period.
        """
        found = cls(_moment(since, "--since", now), _moment(until, "--until", now))
        if found.since and found.until and found.since >= found.until:
            raise ConfigError(f"--since {since} is not before --until {until}")
        return found

    def __bool__(self) -> bool:
        """Return whether the period has a bound."""
        return bool(self.since or self.until)

    def holds(self, moment: datetime) -> bool:
        """Return whether ``moment`` is in the period."""
        return (self.since is None or moment >= self.since) and (
            self.until is None or moment < self.until
        )

    def files(self, files: Iterable[LedgerFile]) -> list[LedgerFile]:
        """Return the files that may hold lines of the period; only the first lines of a file are read."""
        return [file for file in files if self._may_hold(file)]

    def _may_hold(self, file: LedgerFile) -> bool:
        changed = _changed(file)
        if self.since is not None and changed is not None and changed < self.since - SLACK:
            return False
        if self.until is None:
            return True
        first = _first_moment(file)
        if first is None or first < self.until + SLACK:
            return True
        # The clock of the file's worker was ahead at first, and was then set back: later lines are earlier.
        return changed is not None and changed < first - SLACK

    def rows(self, rows: Sequence[Row]) -> list[Row]:
        """Return the accepted lines of the period."""
        if not self:
            return list(rows)
        decisions = {
            (row.values["group_id"], row.values["decision_id"])
            for row in rows
            if row.table == "decision" and self.holds(row.values["ts"])
        }
        return [
            row
            for row in rows
            if (
                (row.values["group_id"], row.values["decision_id"]) in decisions
                if row.table == "assignment"
                else self.holds(row.values[MOMENT[row.table]])
            )
        ]

    def on_spark(self, parsed: DataFrame) -> DataFrame:
        """Apply :meth:`rows` to a parsed DataFrame; refused lines and the closing rows of chunks are kept."""
        from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by

        if not self:
            return parsed
        inside = F.lit(True)
        for table, column in MOMENT.items():
            moment = F.col(f"{table}.{column}")
            for bound, fits in ((self.since, moment.__ge__), (self.until, moment.__lt__)):
                if bound is not None:
                    inside = inside & F.coalesce(fits(F.lit(bound)), F.lit(True))
        kept = parsed.where(inside)
        key = [F.col(f"decision.{name}").alias(f"_{name}") for name in ("group_id", "decision_id")]
        decided = kept.where("decision is not null").select(*key).distinct()
        placed = kept.where("assignment is not null").join(
            F.broadcast(decided),
            (F.col("assignment.group_id") == F.col("_group_id"))
            & (F.col("assignment.decision_id") == F.col("_decision_id")),
            "left_semi",
        )
        return kept.where("assignment is null").unionByName(placed)


def without_future(rows: Sequence[Row], now: datetime) -> list[Row]:
    """Return ``rows`` without lines from clocks that are ahead; if all lines are ahead, return all lines.

    A line is ahead if its time is more than :data:`SLACK` after ``now``; a placement, if its decision is.
    """
    times = {
        id(row): row.values[MOMENT[row.table]] <= now + SLACK
        for row in rows
        if row.table != "assignment"
    }
    told: dict[tuple[str, str], bool] = {}
    for row in rows:
        if row.table == "decision":
            key = (row.values["group_id"], row.values["decision_id"])
            told[key] = told.get(key, False) or times[id(row)]
    kept = [
        row
        for row in rows
        if (
            told.get((row.values["group_id"], row.values["decision_id"]), True)
            if row.table == "assignment"
            else times[id(row)]
        )
    ]
    return kept if any(times.values()) else list(rows)


def without_future_on_spark(parsed: DataFrame, now: datetime) -> DataFrame:
    """Apply :func:`without_future` to a parsed DataFrame. Cost: one pass, one collected row per decision."""
    from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by

    at = F.coalesce(*(F.col(f"{table}.{column}") for table, column in MOMENT.items()))
    is_past = at <= F.lit(now + SLACK)
    if parsed.where(is_past).isEmpty():
        return parsed
    key = [F.col(f"decision.{name}").alias(f"_{name}") for name in ("group_id", "decision_id")]
    told = parsed.where("decision is not null").groupBy(*key).agg(F.max(is_past).alias("_past"))
    ahead = told.where("not _past")
    kept = parsed.where(F.coalesce(is_past, F.lit(True)))
    return kept.join(
        F.broadcast(ahead),
        (F.col("assignment.group_id") == F.col("_group_id"))
        & (F.col("assignment.decision_id") == F.col("_decision_id")),
        "left_anti",
    )


def _moment(text: str | None, option: str, now: datetime) -> datetime | None:
    if text is None:
        return None
    if ago := _AGO.fullmatch(text):
        return now - min(int(ago[1]) * _UNITS[ago[2]], now - FIRST)
    try:
        if len(text) == len("2026-11-21"):
            text = f"{date.fromisoformat(text)}T00:00"
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"{option} {text!r}: expected a day, a time, or an age (36h, 7d)"
        ) from None
    return min(max(moment if moment.tzinfo else moment.replace(tzinfo=UTC), FIRST), LAST)


def _changed(file: LedgerFile) -> datetime | None:
    """Return the time of the file's last change; None if its storage does not report the time."""
    try:
        return datetime.fromtimestamp(float(file.modified), UTC)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(file.modified)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _first_moment(file: LedgerFile) -> datetime | None:
    """Return the time of the first accepted line that has a time; None if there is no such line."""
    try:
        for _, line in read_lines(Chunk(file.name, 0, file.size, file.inode)):
            row = parse(line)
            if isinstance(row, Row) and row.table in MOMENT:
                found: datetime = row.values[MOMENT[row.table]]
                return found
    except (LedgerDamaged, FileNotFoundError):
        return None
    return None

"""The quality of a history's data, and its gates: limits that make a scheduled run fail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import ClassVar

import pyarrow.compute as pc

from faust_assigner.errors import FaustAssignerError
from faust_assigner.pipeline.history.store import Manifest, Store
from faust_assigner.pipeline.ledgers.refusals import Refused, Tolerance
from faust_assigner.pipeline.rows import Rows
from faust_assigner.pipeline.schema import is_leader_topic

#: Lines of a worker whose clock is ahead by more than this do not count as the newest line.
CLOCK_SKEW = timedelta(hours=1)
#: The maximum number of missing days that the report names.
DAYS_NAMED = 31
#: Fact -> the column with the time of its end.
_MOMENTS = {"decisions": "ts", "recoveries": "ended", "samples": "ts"}


class GateFailed(FaustAssignerError, ValueError):
    """The history is written, but a gate failed; the message names the gate, the limit and the value."""

    exit_code: ClassVar[int] = 3


@dataclass(frozen=True)
class Gates:
    """The limits for the history after a run; a limit of None is not checked."""

    #: The minimum number of days in the history.
    min_days: int | None = None
    #: The highest age of the newest line in seconds.
    max_age_s: float | None = None


@dataclass(frozen=True)
class Quality:
    """The data quality of the history; ages in seconds, days as ISO dates."""

    checked_at: datetime
    #: The lines of the run that wrote the report.
    lines_accepted: int
    lines_refused: int
    #: The refused lines of all runs.
    refused_in_all: int
    placements_without_decision: int
    days: int
    first_day: str | None
    last_day: str | None
    #: The number of days without any line between the first and the last day.
    days_missing: int
    #: The newest days without a line, at most ``DAYS_NAMED``.
    missing: tuple[str, ...]
    days_in_future: int
    newest_line: datetime | None
    age_s: float | None
    #: The number of topic partitions in the newest decisions, and how many of these partitions have a
    #: sample on the newest day with samples.
    partitions_owned: int
    partitions_sampled: int
    gates: tuple[Mapping[str, object], ...] = ()

    @property
    def today(self) -> date:
        """The day of the check; later days are in the future."""
        return today_of(self.checked_at)

    def check(self) -> None:
        """Raise GateFailed if a gate failed."""
        missed = [gate for gate in self.gates if not gate["passed"]]
        if missed:
            raise GateFailed("; ".join(map(gate_text, missed)))

    def rows(self) -> list[tuple[str, str, bool]]:
        """Return (name, value, whether the value needs attention) of each figure for the page."""
        missing = f"{self.days_missing:,}"
        if self.missing:
            missing += f" (newest: {', '.join(self.missing[-3:])})"
        share = self.lines_refused / max(1, self.lines_accepted + self.lines_refused)
        newest = self.newest_line
        age = "" if self.age_s is None else f", {_age(self.age_s)} before this run"
        return [
            ("lines of this run", f"{self.lines_accepted:,} accepted", False),
            ("refused", f"{self.lines_refused:,} ({share:.2%})", self.lines_refused > 0),
            ("refused in all runs", f"{self.refused_in_all:,}", False),
            (
                "placements without decision",
                f"{self.placements_without_decision:,}",
                self.placements_without_decision > 0,
            ),
            ("days", f"{self.days:,}, {self.first_day or '-'} to {self.last_day or '-'}", False),
            ("days without a line", missing, self.days_missing > 0),
            ("days in the future", f"{self.days_in_future:,}", self.days_in_future > 0),
            ("newest line", f"{newest:%Y-%m-%d %H:%M:%S} UTC{age}" if newest else "-", False),
            (
                "partitions with samples",
                f"{self.partitions_sampled:,} of {self.partitions_owned:,}",
                self.partitions_sampled < self.partitions_owned,
            ),
            *((f"gate {gate['gate']}", gate_text(gate), not gate["passed"]) for gate in self.gates),
        ]


def gate_text(gate: Mapping[str, object]) -> str:
    """Return a gate's limit, value and result as a text."""
    verdict = "passed" if gate["passed"] else "missed"
    return f"--{gate['gate']} {gate['limit']}: {gate['found']}, {verdict}"


def quality_of(
    store: Store,
    manifest: Manifest,
    tables: Mapping[str, Rows],
    lost: int,
    refused: Refused,
    wanted: tuple[Gates, Tolerance],
    now: datetime,
) -> Quality:
    """Return the quality of ``manifest``, and of the run with the counts ``refused``.

    Cost: one read of the newest day.
    """
    dates = [date.fromisoformat(day) for day in manifest.dates]
    today = today_of(now)
    there, known = set(dates), [day for day in dates if day <= today]
    span = range((known[-1] - known[0]).days) if known else range(0)
    missing = [day for n in span if (day := known[0] + timedelta(days=n)) not in there]
    newest = _newest_line(store, manifest, now)
    age_s = None if newest is None else max(0.0, (now - newest).total_seconds())
    owned, sampled = _sampled(tables)
    return Quality(
        now,
        refused.accepted,
        refused.lines,
        manifest.refused,
        lost,
        len(dates),
        manifest.dates[0] if dates else None,
        manifest.dates[-1] if dates else None,
        len(missing),
        tuple(day.isoformat() for day in missing[-DAYS_NAMED:]),
        len(dates) - len(known),
        newest,
        age_s,
        owned,
        sampled,
        tuple(_verdicts(wanted, refused, len(known), age_s)),
    )


def today_of(now: datetime) -> date:
    """Return the current day of a clock that is ahead by ``CLOCK_SKEW``."""
    return (now + CLOCK_SKEW).date()


def _verdicts(
    wanted: tuple[Gates, Tolerance], refused: Refused, days: int, age_s: float | None
) -> list[dict[str, object]]:
    gates, tolerance = wanted
    found = []
    if tolerance.most is not None or tolerance.share is not None:
        limit = f"{tolerance.most:,}" if tolerance.share is None else f"{tolerance.share:.4%}"
        found.append(_verdict("max-refused", limit, f"{refused.lines:,} lines refused", True))
    if gates.min_days is not None:
        told = f"the history has {days:,} days"
        found.append(_verdict("min-days", f"{gates.min_days:,}", told, days >= gates.min_days))
    if gates.max_age_s is not None:
        is_fresh = age_s is not None and age_s <= gates.max_age_s
        told = (
            "the history has no line" if age_s is None else f"the newest line is {_age(age_s)} old"
        )
        found.append(_verdict("max-age", _age(gates.max_age_s), told, is_fresh))
    return found


def _verdict(gate: str, limit: str, found: str, passed: bool) -> dict[str, object]:
    return {"gate": gate, "limit": limit, "found": found, "passed": passed}


def _newest_line(store: Store, manifest: Manifest, now: datetime) -> datetime | None:
    """Return the time of the newest line that is not in the future."""
    for day in reversed(manifest.dates):
        moments = []
        for fact, column in _MOMENTS.items():
            times = store.read(fact, day, manifest.days[day], [column])[column]
            past = times.filter(pc.less_equal(times, now + CLOCK_SKEW))
            moments.append(pc.max(past).as_py())
        found = max((moment for moment in moments if moment is not None), default=None)
        if found is not None:
            return found.astimezone(UTC)  # type: ignore[no-any-return]
    return None


def _sampled(tables: Mapping[str, Rows]) -> tuple[int, int]:
    """Return the numbers of owned topic partitions and of those with a sample on the newest sampled day."""
    owned = sum(row["active_partitions"] for row in tables["owners"])
    newest: dict[str, date] = {}
    # The owners' partitions do not include those of Faust's leader topic.
    rows = [row for row in tables["skew"] if not is_leader_topic(row["topic"])]
    for row in rows:
        newest[row["group_id"]] = max(row["dt"], newest.get(row["group_id"], row["dt"]))
    sampled = sum(row["dt"] == newest[row["group_id"]] for row in rows)
    return owned, min(owned, sampled)


def _age(seconds: float) -> str:
    """Format a duration in its largest fitting unit.

    >>> _age(45), _age(5400), _age(200_000)
    ('45 s', '1.5 h', '2.31 d')
    """
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.0f} s"

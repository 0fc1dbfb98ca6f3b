"""The content of a page: the report of a query, and the problem if the report is missing or outdated."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from faust_assigner.page.history import History
from faust_assigner.page.scrub import scrubbed
from faust_assigner.page.tasks import Family, families_of
from faust_assigner.status.report import Report
from faust_assigner.status.saved import Saved


@dataclass(frozen=True, kw_only=True)
class Problem:
    """The reason for a missing or outdated report; ``level`` is ``bad`` or ``changing``."""

    title: str
    text: str
    steps: tuple[str, ...] = ()
    level: str = "bad"


@dataclass(frozen=True, kw_only=True)
class Look:
    """The content of a page. ``report`` is free of secrets; None before the first report.

    ``every_s`` are the seconds between two queries, None if no further query follows.
    """

    group: str
    report: Report | None
    families: tuple[Family, ...]
    history: History
    problem: Problem | None
    every_s: float | None


def looking() -> Problem:
    """Return the notice that the page shows until the first query has ended."""
    return Problem(
        title="Looking at the group",
        text="The page queries the brokers and the workers. This takes up to a few seconds.",
        level="changing",
    )


def no_group(group: str) -> Problem:
    """Return the problem of a group that the cluster does not know."""
    return Problem(
        title="No such group",
        text=f"The cluster has no group named {group}. A group of Faust workers is named after the app's id, "
        "and exists while a worker runs or offsets are kept.",
        steps=(
            "Compare the name with the app's id: faust.App(ID), and its version where that is above 1.",
            "List all groups of the cluster: faust-assigner groups list",
            "Start a worker. This page keeps looking.",
        ),
    )


def no_answer(said: str, has_report: bool) -> Problem:
    """Return the problem of silent brokers.

    ``has_report`` is True if the page still shows an earlier report.
    """
    kept = " The last known state is shown below." if has_report else ""
    return Problem(
        title="The brokers do not answer", text=f"{said}.{kept} This page keeps looking."
    )


def our_bug(title: str) -> Problem:
    """Return the problem of an unexpected error."""
    return Problem(title=title, text="This is a bug in faust-assigner; its log has the reason.")


def no_members(report: Report | None) -> Problem | None:
    """Return the problem of a group without members; None if the report has members."""
    if report is None or report.members:
        return None
    return Problem(
        title="The group has no members",
        text="The group has no workers now. Its committed offsets are kept, and the first worker to join gets"
        " all tasks.",
        level="changing",
    )


def look_of(saved: Saved, *, source: str) -> Look:
    """Return the content for the newest saved report, with the history of all saved reports.

    ``source`` is the name of the file. Cost: linear in queries, tasks and copies.
    """
    history = History()
    for report in (scrubbed(one) for one in saved.looks):
        families = families_of(report)
        history.note(report, families)
    history.note_reported([scrubbed(one) for one in saved.rounds], report)
    return Look(
        group=report.group,
        report=report,
        families=families,
        history=history,
        problem=_saved_problem(saved.looks, source),
        every_s=None,
    )


def _saved_problem(looks: tuple[Report, ...], source: str) -> Problem:
    first, last = (datetime.fromtimestamp(one.taken_at, UTC) for one in (looks[0], looks[-1]))
    span = f"{last:%Y-%m-%d %H:%M:%S} UTC"
    if len(looks) > 1:
        end = f"{last:%H:%M:%S} UTC" if first.date() == last.date() else span
        span = f"{first:%Y-%m-%d %H:%M:%S} to {end}, {len(looks):,} looks"
    return Problem(
        title="A saved status",
        text=f"From the file {source} ({span}). The page shows the last look and does not query the "
        "group, which may have changed or ended.",
        level="changing",
    )

"""A page about saved looks: the newest look, with the history of all looks. No I/O."""

from __future__ import annotations

from datetime import UTC, datetime

from faust_assigner.page.history import History
from faust_assigner.page.look import Look, Problem
from faust_assigner.page.scrub import scrubbed
from faust_assigner.page.tasks import families_of
from faust_assigner.status.report import Report
from faust_assigner.status.saved import Saved


def look_of(saved: Saved, *, source: str) -> Look:
    """Return the page's look. ``source`` names the file. Cost: linear in looks, tasks and copies."""
    history = History()
    for report in (scrubbed(one) for one in saved.looks):
        families = families_of(report)
        history.note(report, families)
    history.note_told([scrubbed(one) for one in saved.rounds], report)
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
        span = f"{first:%Y-%m-%d %H:%M:%S} to {last:%H:%M:%S} UTC, {len(looks):,} looks"
    return Problem(
        title="A saved status",
        text=f"From the file {source} ({span}). The page shows the last look and does not query the "
        "group, which may have changed or ended.",
        level="changing",
    )

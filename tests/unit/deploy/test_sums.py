"""Sums over several events: every event of a rolling restart counts."""

from __future__ import annotations

from faust_assigner.deploy.fleet import Moved
from faust_assigner.deploy.judge import _check_copies
from faust_assigner.deploy.play import Played
from faust_assigner.deploy.report import OK
from tests.unit.deploy.test_parts import move, step


def moved(*changelogs: str) -> Moved:
    """A warm move of a task with these changelogs."""
    return Moved(
        topics=("orders", *changelogs),
        changelogs=changelogs,
        partition=3,
        was="a",
        to="b",
        is_cold=False,
        records=0,
        is_behind=False,
    )


def test_the_moves_of_tasks_with_tables_are_counted_in_all_events() -> None:
    """A task without a table does not count."""
    events = [
        Played(event="a stops", stopped=("a",), is_crash=False, moved=(moved("x"), moved())),
        Played(event="a is back", stopped=(), is_crash=False, moved=()),
        Played(
            event="b stops", stopped=("b",), is_crash=False, moved=(moved("x"), moved("y", "z"))
        ),
    ]
    found = _check_copies([step(moves=(move(), move())), step(moves=(move(),))], events)
    words = "3 moves of tasks with tables, each to a copy that has caught up"
    assert (found.state, found.text) == (OK, words)

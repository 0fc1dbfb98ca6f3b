"""The answer of deploy-check on a terminal: moves, pauses, sums and advice."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from faust_assigner.deploy.render import (
    MOST_MOVES,
    _advice_text,
    _move,
    _moves_text,
    _pause_text,
    render,
)
from faust_assigner.deploy.report import (
    CANNOT_TELL,
    FAILED,
    NOT_SAFE,
    OK,
    SAFE,
    UNKNOWN,
    Check,
    Report,
)
from tests.support.status import LOG
from tests.unit.deploy.test_parts import move, step


def report(**more: Any) -> Report:
    """Return a safe stop without moves."""
    base: dict[str, Any] = {
        "group": "shop",
        "question": "stop w1",
        "taken_at": 0.0,
        "verdict": SAFE,
        "exit_code": 0,
        "checks": (),
        "moves": 0,
        "cold": 0,
        "behind": 0,
        "later_moves": 0,
        "pause_s": 0.0,
        "steps": (),
    }
    return Report(**base | more)


def shown(found: Report) -> list[str]:
    """Return the report's lines, with single blanks."""
    screen = io.StringIO()
    Console(file=screen, width=200).print(render(found))
    return [" ".join(line.split()) for line in screen.getvalue().splitlines()]


def test_moves_say_how_many_of_them_are_cold_behind_and_later() -> None:
    """Zero counts are left out, except for cold moves."""
    assert _moves_text(step(moves=(move(),))) == "1 task at once, 0 cold"
    found = _moves_text(step(moves=(move(), move()), cold=1, behind=1, later_moves=3))
    assert found == (
        "2 tasks at once, 1 cold, 1 to a copy that is behind; "
        "3 later, each when its copy has caught up"
    )
    assert _moves_text(step(members=0)) == "no worker is left, and nothing is processed"
    assert _moves_text(step(stopped=(), members=0)) == "0 tasks at once, 0 cold"


def test_a_static_worker_that_returns_in_time_moves_nothing() -> None:
    """A worker that does not return is removed after its session timeout, or retired."""
    assert _moves_text(step(static=("a",))) == (
        "none if a is back within 1 min (static); else 0 tasks at once, 0 cold"
    )
    assert _moves_text(step(static=("a", "b"), session_timeout_s=None)).startswith(
        "none if a, b are back within the session timeout (static)"
    )
    assert _moves_text(step(static=("a",), is_for_good=True)).startswith(
        "none for 1 min (a is static; at once where retired first); then "
    )


def test_a_move_names_its_source_topic_and_the_state_of_the_copy() -> None:
    """A task without a table has no state."""
    both = ("orders", LOG)
    assert _move(move(topics=both, records=5), "shop") == (
        "orders/0  w1 -> w0  warm, 5 records to read"
    )
    assert _move(move(topics=(LOG,), was="", records=None), "shop") == (
        f"{LOG}/0  - -> w0  warm, unknown records to read"
    )
    assert "cold, 1,000 records" in _move(move(topics=both, is_cold=True, records=1000), "shop")
    assert "its copy is behind" in _move(move(topics=both, is_behind=True, records=9), "shop")
    assert _move(move(), "shop") == "orders/0  w1 -> w0  no table"
    assert "no table" not in _move(move(topics=both), "shop")


def test_an_unknown_pause_is_marked() -> None:
    """The mark is followed by the step's reason."""
    assert _pause_text(step()) == "1.0 s to restore"
    assert _pause_text(step(pause_s=None, pause="why")) == "not known: why"


def test_the_failed_checks_come_first_and_a_verdict_that_is_not_safe_has_advice() -> None:
    """The remaining checks keep their order."""
    states = (("a", OK), ("b", UNKNOWN), ("c", FAILED), ("d", OK))
    checks = tuple(Check(name=name, state=state, text="x") for name, state in states)
    found = shown(report(verdict=NOT_SAFE, checks=checks, problems=("y",)))
    assert found[:5] == [
        "NOT SAFE: stop w1 (group shop)",
        "failed c x",
        "unknown b x",
        "ok a x",
        "ok d x",
    ]
    assert found[5:8] == ["", "not known", "y"]
    assert found[-1].startswith("--wait 600")
    assert shown(report())[-1] == "SAFE: stop w1 (group shop)"
    told = shown(report(verdict=CANNOT_TELL, checks=checks[:2]))
    assert told[0].startswith("CANNOT TELL")
    assert told[-1].startswith("Repeat with the missing data")
    assert _advice_text(report(verdict=NOT_SAFE)) == ""


def test_an_event_lists_its_first_moves_and_counts_the_rest() -> None:
    """New copies have a size if the size is known."""
    moves = tuple(move(partition=n) for n in range(MOST_MOVES + 2))
    one = step(moves=moves, copies=3, copy_bytes=2_000)
    found = shown(report(steps=(one,)))
    assert "when w1 stops" in found
    assert "new copies 3 partitions of tables, 2.0 kB" in found
    assert found[-1] == "and 2 more (--json lists all)"
    assert sum(line.startswith("orders/") for line in found) == MOST_MOVES
    exact = shown(report(steps=(step(moves=moves[:MOST_MOVES], copies=3, copy_bytes=None),)))
    assert "new copies 3 partitions of tables" in exact
    assert not any("more (--json" in line for line in exact)


def test_several_events_are_a_table_with_their_sums() -> None:
    """A static worker is marked, and an unknown pause is shown as not known."""
    steps = (
        step(
            moves=(move(),), static=("w1",), cold=1, behind=2, later_moves=3, copies=4, copy_bytes=5
        ),
        step(event="w1 is back", pause_s=None),
    )
    found = shown(report(steps=steps, moves=1, cold=1, behind=2, later_moves=3))
    assert "w1 stops (static) 1 1 2 3 4, 5 B 1.0 s" in found
    assert "w1 is back 0 0 0 0 0 not known" in found
    assert "in all 1 1 2 3" in found


def test_each_state_and_each_verdict_has_its_colour() -> None:
    """An operator reads red as a failure and green as safe."""
    states = {OK: "green", UNKNOWN: "yellow", FAILED: "bold red"}
    verdicts = {SAFE: "bold green", NOT_SAFE: "bold red", CANNOT_TELL: "bold yellow"}
    for state, style in states.items():
        for verdict, head_style in verdicts.items():
            found = report(verdict=verdict, checks=(Check(name="n", state=state, text="t"),))
            head, table, *_ = render(found).renderables  # type: ignore[attr-defined]
            assert [span.style for span in head.spans] == [head_style]
            (cell,) = table.columns[0].cells
            assert (cell.plain, cell.style) == (f"  {state}", style)

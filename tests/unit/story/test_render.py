"""The answer of ``why`` on a terminal."""

from __future__ import annotations

import io

from rich.console import Console

from faust_assigner.story.again import Remedy
from faust_assigner.story.render import render
from faust_assigner.story.tell import Answer, Event


def test_a_name_wider_than_the_terminal_is_shown_whole() -> None:
    """The name continues on the next line of its column and is not cut off."""
    name = "-".join(f"pod{number}" for number in range(30))
    answer = Answer(
        group="shop", subject="orders/1", headline="it moved", events=(Event(at=0, text=name),)
    )
    screen = io.StringIO()
    Console(file=screen, width=60).print(render(answer))
    assert "00:00:00.000" in screen.getvalue()
    assert name in "".join(screen.getvalue().split())


def shown(**more: object) -> list[str]:
    """Return the lines of an answer."""
    base: dict[str, object] = {
        "group": "shop",
        "subject": "t/0",
        "headline": "t/0 moved",
        "events": (),
    }
    screen = io.StringIO()
    Console(file=screen, width=200).print(render(Answer(**base | more)))  # type: ignore[arg-type]
    return [line.rstrip() for line in screen.getvalue().splitlines()]


def test_times_are_utc_with_each_day_once() -> None:
    """Milliseconds are truncated, not rounded."""
    times = (86_399.9999, 86_400.0, 90_000.25)
    events = tuple(Event(at=at, text=f"event {n}") for n, at in enumerate(times))
    assert [" ".join(line.split()) for line in shown(events=events)] == [
        "t/0 moved (group shop)",
        "1970-01-01 UTC",
        "23:59:59.999 event 0",
        "1970-01-02 UTC",
        "00:00:00.000 event 1",
        "01:00:00.250 event 2",
    ]


def test_the_smallest_change_is_named_first_and_the_time_of_the_restore_in_the_headline() -> None:
    """The remaining changes keep their order."""
    found = shown(
        restored_s=90.0,
        rule="moves",
        avoided_by=(Remedy(change="a", then="x"), Remedy(change="b", then="y")),
        unknown=("z",),
    )
    assert found[0] == "t/0 moved; restored 1 min 30 s later (group shop)"
    assert found[-4:] == ["rule: it moves", "avoided by: a: x", "        or: b: y", "not known: z"]


def test_no_change_is_said_only_if_changes_were_tried() -> None:
    """A first placement has no change to avoid; missing data is named instead."""
    words = "avoided by: none of the tried changes"
    assert shown(rule="moves")[-1] == words
    assert words not in shown()
    assert words not in shown(rule="placed", is_first=True)
    assert words not in shown(rule="moves", unknown=("z",))


def test_no_text_of_a_ledger_reaches_the_terminal_as_a_command() -> None:
    """Ledger lines come from workers' URLs and files: a name may contain an escape sequence."""
    odd = "\x1b]0;x\x07\x9b2J"
    found = shown(
        group=odd,
        headline=odd,
        events=(Event(at=0, text=odd),),
        rule=odd,
        avoided_by=(Remedy(change=odd, then=odd), Remedy(change=odd, then=odd)),
        unknown=(odd,),
    )
    assert all(line.isprintable() for line in found)
    assert sum(line.count("?]0;x??2J") for line in found) == 9

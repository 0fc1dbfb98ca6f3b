"""The answer as people see it."""

from __future__ import annotations

import io

from rich.console import Console

from faust_assigner.story.render import render
from faust_assigner.story.tell import Answer, Event


def test_a_name_wider_than_the_terminal_is_shown_whole() -> None:
    """It goes on in the next line of its column; nothing is cut off."""
    name = "-".join(f"pod{number}" for number in range(30))
    answer = Answer(
        group="shop", subject="orders/1", headline="it moved", events=(Event(at=0, text=name),)
    )
    screen = io.StringIO()
    Console(file=screen, width=60).print(render(answer))
    assert "00:00:00.000" in screen.getvalue()
    assert name in "".join(screen.getvalue().split())

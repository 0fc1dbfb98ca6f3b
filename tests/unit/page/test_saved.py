"""A page of saved looks: the newest look with the history of all looks, marked as saved."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from faust_assigner.page.look import Look, look_of
from faust_assigner.page.render import page_of, parts_of, title_of
from faust_assigner.page.watch import Watch
from faust_assigner.status.build import build
from faust_assigner.status.report import Report
from faust_assigner.status.saved import Saved
from faust_assigner.wire.outcome import Outcome
from faust_assigner.wire.worker_status import MovedTask, RoundTold
from tests.support.status import AT, MadeGroup, group
from tests.support.waiting import PATIENCE_S


def report_of(made: MadeGroup, seconds: float) -> Report:
    """A look at the group, this many seconds after the first."""
    return replace(build(made.evidence()), taken_at=AT + seconds)


def three_looks() -> Look:
    """Looks at two members and a third that joined, with an earlier round of the workers."""
    made = group(2)
    first = report_of(made, 0)
    made.join("m2").round()
    moved = MovedTask(
        topic="orders", partition=0, source="", target="m1", rule="promoted", is_cold=False
    )
    told = RoundTold(generation=1, at=AT - 60, outcome=Outcome(trigger="leave"), moves=(moved,))
    looks = (first, report_of(made, 30), report_of(made, 32))
    return look_of(Saved(looks=looks, rounds=(told,)), source="looks.jsonl")


def whole(look: Look) -> str:
    """Render the page."""
    return page_of(look, parts_of(look), 1)


def test_all_looks_and_rounds_make_the_history_and_the_last_one_the_page() -> None:
    """The page looks as if it had been open during all looks."""
    look = three_looks()
    assert look.report is not None
    assert (look.group, len(look.report.members)) == ("shop", 3)
    assert [sample.members for sample in look.history.samples] == [2, 3, 3]
    assert [one.generation for one in look.history.rounds] == [1, 2, 3]
    assert look.history.moves_of(["orders/0"])[-1].rule == "promoted"


def test_the_page_says_that_it_is_saved_and_from_when() -> None:
    """The page of a saved look raises no alarm, unlike the page of a silent group."""
    look = three_looks()
    shown = whole(look)
    assert "From the file looks.jsonl (2026-11-21 03:40:22 to 03:40:54 UTC, 3 looks)" in shown
    assert "a saved status, which does not change" in shown
    assert "The lines begin with the first saved look." in shown
    assert "reads the status" not in shown
    assert title_of(look) == "shop · faust-assigner"
    followed = whole(replace(look, problem=None, every_s=2.0))
    assert followed.count("reads the status at most every 2 s") == 1


async def test_a_watch_of_a_saved_look_shows_it_and_never_looks() -> None:
    """The watch's task ends at once, but its streams work."""
    look = three_looks()
    watch = Watch("shop", saved=look)
    async with asyncio.timeout(PATIENCE_S):
        await watch.run()
    assert (await watch.first()).look is look
    stream = watch.events()
    assert [(await anext(stream))[:12] for _ in range(2)] == [b"retry: 2000\n", b"event: look\n"]
    await stream.aclose()
    assert watch.story("orders/0", is_part=False) is not None


def test_a_saved_look_shows_no_secret_of_its_lines() -> None:
    """Secrets in earlier looks, the last look and rounds are hidden; the file may be older."""
    made = group(2)
    secret = "kafka://shop:hunter2@k:9092"
    look, earlier = (
        replace(report_of(made, seconds), problems=(f"{secret} is away",)) for seconds in (9, 0)
    )
    assert earlier.decision is not None
    old = replace(earlier.decision, generation=1, trigger="leave", left=(secret,))
    told = RoundTold(generation=0, at=AT - 60, outcome=Outcome(trigger="join", joined=(secret,)))
    saved = Saved(looks=(replace(earlier, decision=old), look), rounds=(told,))
    found = look_of(saved, source="looks.jsonl")
    assert len(found.history.rounds) == 3
    assert "hunter2" in repr(saved)
    assert "hunter2" not in repr(found.report)
    assert "hunter2" not in repr(found.history.rounds)

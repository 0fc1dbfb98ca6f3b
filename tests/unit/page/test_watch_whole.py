"""A watch from another thread, its first answer, its tags, and pages without the data that failed."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.page import watch as watching
from faust_assigner.page.answers import answer
from faust_assigner.page.head import decision_of, tiles_of
from faust_assigner.page.look import _saved_problem
from faust_assigner.page.render import page_of, parts_of
from faust_assigner.page.scrub import HIDDEN, scrubbed, setting_of, text_of
from faust_assigner.page.server import application
from faust_assigner.page.story import _move_events
from faust_assigner.page.watch import Watch
from faust_assigner.status.build import build
from faust_assigner.status.evidence import Heard
from faust_assigner.status.report import UNREACHABLE
from tests.support.status import group
from tests.support.waiting import PATIENCE_S
from tests.unit.page.test_history import seen
from tests.unit.page.test_watch import Clock, script
from tests.unit.page.test_worker_page import Move


def test_a_request_in_another_thread_wakes_the_looks_at_once() -> None:
    """The idle loop waits for no timer, so only a call that is safe for threads wakes it."""
    looked = threading.Event()
    looks = script(group(1).evidence())
    answer_once = looks.look

    async def look() -> Any:
        looked.set()
        return await answer_once()

    looks.look = look  # type: ignore[method-assign]
    watch = Watch("shop", looks, monotonic=Clock(), every_s=10 * PATIENCE_S)
    begun = threading.Event()
    tasks: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]] = []

    async def run() -> None:
        task = asyncio.create_task(watch.run())
        tasks.append((asyncio.get_running_loop(), task))
        asyncio.get_running_loop().call_later(0.02, begun.set)
        await asyncio.gather(task, return_exceptions=True)

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    assert begun.wait(PATIENCE_S)
    time.sleep(0.02)  # the loop waits in its selector
    watch.touch()
    was_looked = looked.wait(PATIENCE_S)
    loop, task = tasks[0]
    loop.call_soon_threadsafe(task.cancel)
    thread.join(PATIENCE_S)
    assert was_looked


async def test_a_first_answer_waits_for_its_own_limit_and_not_for_a_beat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a look the notice is the answer, and the page counts as open."""
    monkeypatch.setattr(watching, "FIRST_S", 0.01)
    monkeypatch.setattr(watching, "BEAT_S", 3600.0)
    clock = Clock()
    watch = Watch("shop", script(), monotonic=clock)
    assert not watch._is_wanted()
    shown = await asyncio.wait_for(watch.first(), PATIENCE_S)
    assert (shown.version, watch._is_wanted()) == (0, True)


async def test_connections_that_fail_by_a_bug_are_opened_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Any error is logged, and the looks go on."""
    looks = script(group(1).evidence())
    opened: list[int] = []

    def connections() -> Any:
        opened.append(looks.asked)
        if len(opened) == 1:
            raise KeyError("a bug")
        return looks()

    watch = Watch("shop", connections, monotonic=Clock(), every_s=0.001)
    watch.touch()
    task = asyncio.create_task(watch.run())
    async with asyncio.timeout(PATIENCE_S):
        while not looks.asked:
            await asyncio.sleep(0.001)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert opened == [0, 0]
    assert "a bug" in caplog.text


async def test_a_page_that_cannot_be_rendered_shows_no_report(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The report itself may be the cause, so the page has only the notice about the bug."""
    watch = Watch("shop", script())
    drawn, asked = watch._drawn, []

    def failing(report: Any, problem: Any, version: int) -> Any:
        asked.append((report is None, problem and problem.title, version))
        if report is not None:
            raise ZeroDivisionError
        return drawn(report, problem, version)

    monkeypatch.setattr(watch, "_drawn", failing)
    await watch._once(script(group(1).evidence()))
    assert asked == [(False, None, 1), (True, "Could not render the page", 1)]
    assert (watch.shown.version, watch.shown.look.report) == (1, None)
    assert "Could not render the page of group shop" in caplog.text


async def test_a_look_is_rendered_before_it_is_asked_for() -> None:
    """A request on the worker's loop copies bytes; the notice before the first look is rendered late."""
    watch = Watch("shop", script())
    assert "packed" not in vars(watch.shown)
    await watch._once(script(group(1).evidence()))
    assert {"parts", "page", "document", "packed"} <= vars(watch.shown).keys()


async def test_a_tag_of_an_earlier_process_saves_no_answer() -> None:
    """The numbers of queries begin again, but the tag has the time of the start."""
    tags = []
    for started in (1_000.0, 1_000.5):
        watch = Watch("shop", script(), clock=lambda at=started: at)  # type: ignore[misc]
        await watch._once(script(group(1).evidence()))
        tags.append(watch.shown.tag)
        found = await answer(watch, "", {}, {"if-none-match": tags[0]})
        assert found.status == (304 if len(tags) == 1 else 200)
    assert tags == ['"1000000-1"', '"1000500-1"']


async def test_a_reason_of_a_silent_worker_is_shown_without_its_secret() -> None:
    """Errors repeat URLs, which may have a user."""
    found = group(1).evidence()
    detail = "http://shop:hunter2@w0:6066 cannot be reached"
    heard = {url: Heard(answer=UNREACHABLE, detail=detail) for url in found.heard}
    watch = Watch("shop", script())
    await watch._once(script(replace(found, heard=heard)))
    report = watch.shown.look.report
    assert report is not None
    assert [one.detail for one in report.members] == [f"http://{HIDDEN}@w0:6066 cannot be reached"]
    assert "hunter2" not in watch.shown.page.decode()


def test_every_place_of_a_secret_is_hidden() -> None:
    """A query needs no user before it, and a setting with a plain name may have a URL."""
    assert text_of("at http://w0/p?key=hunter2 now") == f"at http://w0/p?{HIDDEN} now"
    assert text_of("password=hunter2") == f"password={HIDDEN}"
    assert setting_of("store", "s3://u:hunter2@b/c?d=e") == f"s3://{HIDDEN}@b/c?{HIDDEN}"
    assert setting_of("my_secret", "x") == HIDDEN
    assert scrubbed((int, "token: hunter2")) == (int, f"token: {HIDDEN}")  # type: ignore[comparison-overlap]


def test_the_times_of_saved_looks_are_in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file may come from a machine in a different time zone."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        report = replace(build(group(1).evidence()), taken_at=0.0)
        later = replace(report, taken_at=86_461.0)
        one = _saved_problem((report,), "f").text
        two = _saved_problem((report, later), "f").text
    finally:
        monkeypatch.undo()
        time.tzset()
    assert one.startswith("From the file f (1970-01-01 00:00:00 UTC). ")
    span = "1970-01-01 00:00:00 to 1970-01-02 00:01:01 UTC"
    assert two.startswith(f"From the file f ({span}, 2 looks). ")


@pytest.mark.parametrize(
    ("silent", "note", "level"),
    [(0, "all answered", "good"), (1, "1 does not answer", "bad"), (2, "2 do not answer", "bad")],
)
def test_silent_members_are_counted(silent: int, note: str, level: str) -> None:
    """One worker *does* not answer, several *do* not."""
    found = group(3).evidence()
    lost = dict.fromkeys(sorted(found.heard)[:silent], Heard(answer=UNREACHABLE, detail="d"))
    report = build(replace(found, heard={**found.heard, **lost}))
    tile = tiles_of(report)[0]
    assert (tile.note, tile.level, tile.of) == (note, level, "of 3")


def test_a_round_without_a_leaders_name_or_a_move_without_a_source_names_none() -> None:
    """An empty name is no name."""
    report = build(group(2).evidence())
    assert report.decision is not None
    decision = replace(report.decision, leader="", at=None)
    text = decision_of(replace(report, decision=decision), {})
    assert text.startswith(f"Last round: {decision.generation}, because ")
    move = Move(key="o/1", at=5.0, generation=7, source="", target="b", was_warm=None)
    [event] = _move_events([move], [seen(7)], 65.0)
    assert (event.what, event.when) == ("b took over", "1 min ago")
    assert (event.reason, event.level) == ("Round 7: members joined.", "good")


def test_the_lag_of_partitions_without_an_owner_counts() -> None:
    """Their records wait, too; only a lag of no partition is unknown."""
    report = build(group(2).evidence())
    partitions = [
        replace(one, owner=None if number == 0 else one.owner, lag=None if number else 1_234)
        for number, one in enumerate(report.partitions)
    ]
    tile = tiles_of(replace(report, partitions=tuple(partitions)))[1]
    assert (tile.name, tile.value, tile.level) == ("Lag", "1,234", "good")
    tile = tiles_of(replace(report, partitions=tuple(partitions[1:])))[1]
    assert (tile.value, tile.level) == ("-", "unknown")


@pytest.mark.parametrize("host", ["", None, "shop.example", "10.0.0.1"])
def test_a_local_page_answers_no_request_without_a_loopback_name(host: str | None) -> None:
    """A request without any name of a host is no local request."""
    watch = Watch("shop", script(group(1).evidence()), monotonic=Clock())
    (route,) = {each.handler for each in application(watch, is_local=True).router.routes()}
    request: Any = SimpleNamespace(url=SimpleNamespace(host=host))
    assert asyncio.run(route(request)).status == 403


def test_the_page_has_the_number_of_its_look() -> None:
    """The script compares it with the events of the stream."""
    look = Watch("shop", script(group(1).evidence()), monotonic=Clock()).shown.look
    parts = parts_of(look)
    assert '<main data-version="4711">' in page_of(look, parts, 4_711)

"""Looks at a group for a page: only while a page is open, despite errors, and sent to all pages."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest

from faust_assigner.clients.groups import GroupNotFound, NoBrokerAnswers
from faust_assigner.page import watch as watching
from faust_assigner.page.answers import HEADERS, answer
from faust_assigner.page.watch import (
    IDLE_S,
    MOST_STREAMS,
    SHARE,
    WORKER_SHARE,
    TooManyStreams,
    Watch,
)
from faust_assigner.status.evidence import Evidence
from faust_assigner.wire.worker_status import MovedTask, RoundTold
from tests.support.page import Script
from tests.support.status import group
from tests.support.waiting import PATIENCE_S


class Clock:
    """A manual monotonic clock."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Return the current time."""
        return self.now


def script(*looks: Evidence | Exception) -> Script:
    """These looks, one after the next."""
    return Script(iter(looks))


@asynccontextmanager
async def running(
    looks: Script, *, clock: Callable[[], float] | None = None
) -> AsyncIterator[Watch]:
    """Run a watch that looks a hundred times a second."""
    watch = Watch("shop", looks, monotonic=clock or Clock(), every_s=0.01)
    task = asyncio.create_task(watch.run())
    await asyncio.sleep(0)
    try:
        yield watch
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(fact: Callable[[], object]) -> None:
    """Wait until ``fact`` holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not fact():
            await asyncio.sleep(0.005)


async def body(watch: Watch, path: str = "", **query: str) -> str:
    """Return the text of an answer."""
    return (await answer(watch, path, query, {})).body.decode()


async def test_nobody_is_asked_before_somebody_opens_the_page() -> None:
    """The looks also end a while after the last page was closed."""
    looks, clock = script(group(2).evidence()), Clock()
    async with running(looks, clock=clock) as watch:
        await asyncio.sleep(0.05)
        assert looks.opened == looks.asked == 0
        await body(watch)
        await until(lambda: looks.asked > 2)
        clock.now += IDLE_S
        await until(lambda: looks.closed == 1)
        asked = looks.asked
        await asyncio.sleep(0.05)
        assert looks.asked == asked
        await body(watch)
        await until(lambda: looks.opened == 2 and looks.asked > asked)


async def test_the_first_request_waits_for_the_first_look() -> None:
    """The first answer shows the group, not only a notice."""
    async with running(script(group(2).evidence())) as watch:
        assert 'data-name="w1"' in await body(watch)


async def test_a_first_look_that_takes_long_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The page shows a notice, and the stream of events delivers the look."""
    monkeypatch.setattr(watching, "FIRST_S", 0.05)

    class Slow(Script):
        async def look(self) -> Evidence:
            await asyncio.sleep(3600)
            return await super().look()

    async with running(Slow(iter(()))) as watch:
        assert "Looking at the group" in await body(watch)


async def test_a_group_that_is_not_there_is_said_with_what_to_do() -> None:
    """The page names a command, and shows the group as soon as it exists."""
    looks = script(*[GroupNotFound("none")] * 3, group(2).evidence())
    async with running(looks) as watch:
        text = await body(watch)
        assert "No such group" in text
        assert "faust-assigner groups list" in text
        await until(lambda: watch.shown.look.report is not None)
        assert "No such group" not in await body(watch)


async def test_brokers_that_do_not_answer_leave_the_last_look_on_the_page() -> None:
    """The page has the reason without its password."""
    error = NoBrokerAnswers("kafka://shop:hunter2@k:9092 is not there")
    async with running(script(group(2).evidence(), error)) as watch:
        await body(watch)
        await until(lambda: watch.shown.look.problem is not None)
        text = await body(watch)
        assert "The brokers do not answer" in text
        assert "The last known state is shown below" in text
        assert 'data-name="w1"' in text
        assert "hunter2" not in text


async def test_a_fault_of_ours_is_logged_and_the_page_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Only the log has the traceback."""
    async with running(script(ZeroDivisionError("hunter2"), group(2).evidence())) as watch:
        text = await body(watch)
        await until(lambda: watch.shown.look.report is not None)
    assert "bug in faust-assigner" in text
    assert "hunter2" not in text
    assert "ZeroDivisionError" in caplog.text


async def test_the_workers_are_asked_for_their_rounds_when_there_was_another() -> None:
    """The rounds are also fetched when a further worker answers, but not at each look."""
    made = group(2)
    quiet, first = made.evidence(silent=["m1"]), made.evidence()
    made.round()
    looks = script(quiet, quiet, first, first, made.evidence())
    watch = Watch("shop", looks)
    times = []
    for _ in range(5):
        await watch._once(looks)
        times.append(looks.told_times)
    assert times == [1, 1, 2, 2, 3]
    made.round().state = "PreparingRebalance"
    looks = script(made.evidence())
    await Watch("shop", looks)._once(looks)
    assert looks.told_times == 0, "a rebalance is under way: they have other things to do"


async def test_every_open_page_hears_of_a_look() -> None:
    """The page receives a server-sent event with an increasing number."""
    async with running(script(group(2).evidence())) as watch:
        streams = [watch.events(), watch.events()]
        for stream in streams:
            assert await anext(stream) == b"retry: 2000\n\n"
            await anext(stream)
            first, second = (await anext(stream)).decode(), (await anext(stream)).decode()
            assert first.startswith("event: look\nid: ")
            assert first.endswith("\n\n")
            assert int(second.rsplit(":", 1)[1]) > int(first.rsplit(":", 1)[1])
        for stream in streams:
            await stream.aclose()
        assert watch._listeners == set()


async def test_a_silent_stream_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    """The beats let a page distinguish an idle worker from a dead worker."""
    monkeypatch.setattr(watching, "BEAT_S", 0.01)
    watch = Watch("shop", script(group(1).evidence()))
    stream = watch.events()
    found = [await anext(stream) for _ in range(4)]
    await stream.aclose()
    assert [one.split(b"\n")[0] for one in found[1:]] == [b"event: look", *[b"event: beat"] * 2]


async def test_streams_are_bounded_and_a_closed_one_makes_room() -> None:
    """Each stream holds a connection of the worker."""
    watch = Watch("shop", script(group(1).evidence()))
    streams = [watch.events() for _ in range(MOST_STREAMS)]
    for stream in streams:
        await anext(stream)
    with pytest.raises(TooManyStreams):
        await anext(watch.events())
    await streams.pop().aclose()
    await anext(again := watch.events())
    for stream in (*streams, again):
        await stream.aclose()


@pytest.mark.parametrize(("share", "pause_s"), [(SHARE, 3.6), (WORKER_SHARE, 99.6)])
async def test_a_look_that_takes_much_cpu_is_followed_by_a_longer_pause(
    share: float, pause_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The looks take at most a tenth of a core, in a worker at most 0.4 % of a core."""
    spent = iter((0.0, 0.4))
    monkeypatch.setattr(time, "thread_time", lambda: next(spent))
    watch = Watch("shop", script(), every_s=2.0, share=share)
    assert await watch._once(script(group(1).evidence())) == pytest.approx(pause_s)


async def test_an_answer_is_compressed_and_not_sent_twice() -> None:
    """An open page sends a request after each look."""
    watch = Watch("shop", script())
    await watch._once(script(group(3).evidence()))
    plain = await answer(watch, "parts", {}, {})
    packed = await answer(watch, "parts", {}, {"accept-encoding": "gzip, br"})
    assert packed.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain.body
    assert json.loads(plain.body)["parts"]["grid"]
    page = await answer(watch, "", {}, {"accept-encoding": "gzip"})
    assert gzip.decompress(page.body) == (await answer(watch, "", {}, {})).body == watch.shown.page
    assert [one.headers["Content-Type"] for one in (page, packed)] == [
        "text/html; charset=utf-8",
        "application/json",
    ]
    again = await answer(watch, "parts", {}, {"if-none-match": plain.headers["ETag"]})
    assert (again.status, again.body) == (304, b"")
    await watch._once(script(group(3).evidence()))
    assert (
        await answer(watch, "parts", {}, {"if-none-match": plain.headers["ETag"]})
    ).status == 200


@pytest.mark.parametrize(
    "path", ["", "parts", "story", "page.css", "page.js", "icon.svg", "nothing"]
)
async def test_every_answer_forbids_foreign_code_and_frames(path: str) -> None:
    """Answers for unknown pages have the same headers."""
    watch = Watch("shop", script())
    await watch._once(script(group(1).evidence()))
    found = await answer(watch, path, {"t": "orders/0"}, {})
    assert found.status == (404 if path == "nothing" else 200)
    assert HEADERS.items() <= found.headers.items()
    policy = found.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


async def test_a_story_of_no_task_is_not_found() -> None:
    """The same holds before the first look."""
    watch = Watch("shop", script())
    assert (await answer(watch, "story", {"t": "orders/0"}, {})).status == 404
    await watch._once(script(group(1).evidence()))
    assert (await answer(watch, "story", {"t": "orders/0"}, {})).status == 200
    assert (await answer(watch, "story", {"t": "../../etc/passwd"}, {})).status == 404
    assert "<html" not in await body(watch, "story", t="orders/0", part="1")
    assert "<html" in await body(watch, "story", t="orders/0")


async def test_a_page_that_is_opened_before_the_looks_begin_is_looked_at() -> None:
    """The web server may answer before the page's loop runs."""
    looks, clock = script(group(2).evidence()), Clock()
    watch = Watch("shop", looks, monotonic=clock, every_s=0.01)
    watch.touch()
    task = asyncio.create_task(watch.run())
    await until(lambda: looks.asked)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert watch._loop is watch._wanted is None


async def test_a_page_that_is_opened_while_the_connections_close_is_looked_at() -> None:
    """The request of the earlier page is still pending at that time."""
    clock, opened = Clock(), 0
    looks = script(group(2).evidence())

    @asynccontextmanager
    async def connections() -> AsyncIterator[Script]:
        nonlocal opened
        opened += 1
        yield looks
        if opened == 1:
            watch.touch()

    watch = Watch("shop", connections, monotonic=clock, every_s=0.01)
    task = asyncio.create_task(watch.run())
    await asyncio.sleep(0)
    watch.touch()
    await until(lambda: looks.asked)
    clock.now += IDLE_S
    found = asyncio.create_task(until(lambda: opened == 2))
    await asyncio.wait({found}, timeout=PATIENCE_S)
    found.cancel()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert opened == 2


@pytest.mark.parametrize("fails", ["open", "close"])
async def test_connections_that_cannot_be_opened_or_closed_are_opened_again(
    fails: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The failure is logged; without a retry the page would never show a further look."""
    looks, clock, opened = script(group(2).evidence()), Clock(), 0

    @asynccontextmanager
    async def connections() -> AsyncIterator[Script]:
        nonlocal opened
        opened += 1
        if opened == 1 and fails == "open":
            raise OSError("no such certificate")
        yield looks
        if opened == 1:
            raise OSError("not closed")

    watch = Watch("shop", connections, monotonic=clock, every_s=0.01)
    watch.touch()
    task = asyncio.create_task(watch.run())
    try:
        async with asyncio.timeout(30):
            while not looks.asked:
                await asyncio.sleep(0.01)
            if fails == "close":
                clock.now += IDLE_S  # the page is closed, so its connections are closed too
                while "Could not open or close" not in caplog.text:
                    await asyncio.sleep(0.01)
                asked = looks.asked
                watch.touch()
                while looks.asked == asked:
                    await asyncio.sleep(0.01)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert opened == 2
    assert caplog.text.count("Could not open or close") == 1


async def test_a_look_while_an_event_is_written_is_the_next_event() -> None:
    """A slow browser gets the event without waiting for the next beat."""
    watch = Watch("shop", script())
    changes = watch._changes(3600.0)
    await anext(changes)
    (listener,) = watch._listeners
    listener()
    await asyncio.sleep(0)
    following = asyncio.ensure_future(anext(changes))
    done, _ = await asyncio.wait({following}, timeout=PATIENCE_S)
    following.cancel()
    await changes.aclose()
    assert done


@pytest.mark.parametrize("path", ["", "parts", "story"])
async def test_each_request_for_data_keeps_the_looks_going(path: str) -> None:
    """A reader of a task's history keeps the page open too."""
    clock = Clock()
    watch = Watch("shop", script(), monotonic=clock)
    await watch._once(script(group(1).evidence()))
    clock.now += 7
    await answer(watch, path, {"t": "orders/0"}, {})
    assert watch._touched_at == clock.now


async def test_an_open_stream_keeps_the_looks_going(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that is only read sends no further request."""
    monkeypatch.setattr(watching, "BEAT_S", 0.01)
    clock = Clock()
    watch = Watch("shop", script(), monotonic=clock)
    stream = watch.events()
    await anext(stream)
    for _ in range(2):
        clock.now += 7
        await anext(stream)
        assert watch._touched_at == clock.now
    await stream.aclose()


async def test_rounds_are_asked_for_again_after_a_failure_and_shown_without_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The workers' reports have no secrets on the page."""
    made = group(2)
    watch = Watch("shop", script())
    looks = script(made.evidence(), made.evidence())
    moved = MovedTask(
        topic="orders",
        partition=0,
        source="http://shop:hunter2@w0:6066",
        target="w1",
        rule="moved",
        is_cold=False,
    )
    asked, told, noted = 0, list[RoundTold](), list[RoundTold]()
    monkeypatch.setattr(watch._history, "note_reported", lambda rounds, _: noted.extend(rounds))

    async def rounds(evidence: Evidence) -> list[RoundTold]:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise NoBrokerAnswers("away")
        told.append(RoundTold(generation=1, moves=(moved,), at=1000.0))
        return told

    looks.rounds = rounds  # type: ignore[assignment,method-assign]
    await watch._once(looks)
    assert watch.shown.look.problem is not None
    samples = len(watch._history.samples)
    await watch._once(looks)
    assert (asked, watch.shown.look.problem) == (2, None)
    assert len(watch._history.samples) == samples + 1
    assert "hunter2" in repr(told)
    assert [one.generation for one in noted] == [1]
    assert "hunter2" not in repr(noted)


async def test_a_look_is_shown_without_the_secrets_of_its_workers() -> None:
    """A worker may have a password in its URL."""
    made = group(1)
    seen = made.evidence()
    heard = {
        url: replace(one, status=replace(one.status, url="http://shop:hunter2@w0:6066"))
        for url, one in seen.heard.items()
        if one.status is not None
    }
    watch = Watch("shop", script())
    await watch._once(script(replace(seen, heard=heard)))
    assert watch.shown.look.report is not None
    assert "hunter2" not in repr(watch.shown.look.report)


async def test_the_page_repeats_the_interval_of_its_looks() -> None:
    """Before the first look, the page shows a notice."""
    watch = Watch("shop", script(), every_s=7.0)
    assert watch.shown.look.every_s == 7.0
    assert watch.shown.look.problem is not None
    assert watch.shown.look.problem.level == "changing"


async def test_a_group_that_went_shows_no_report_of_it() -> None:
    """The last report of a missing group is outdated."""
    watch = Watch("shop", script())
    await watch._once(script(group(1).evidence()))
    await watch._once(script(GroupNotFound("none")))
    assert watch.shown.look.report is None
    await watch._once(script(group(1).evidence()))
    await watch._once(script(ZeroDivisionError("ours")))
    assert watch.shown.look.report is not None
    assert watch.shown.version == 4


async def test_brokers_that_never_answered_have_no_last_state_to_show() -> None:
    """The text mentions a last state only if there was an answer."""
    watch = Watch("shop", script())
    await watch._once(script(NoBrokerAnswers("away")))
    assert "last known state" not in await body(watch)


async def test_only_the_tag_of_the_shown_version_saves_an_answer() -> None:
    """A request with a different tag gets the complete answer."""
    watch = Watch("shop", script())
    await watch._once(script(group(1).evidence()))
    assert (await answer(watch, "", {}, {"if-none-match": '"old"'})).status == 200
    same = await answer(watch, "", {}, {"if-none-match": watch.shown.tag})
    assert (same.status, same.headers["ETag"]) == (304, watch.shown.tag)
    assert HEADERS.items() <= same.headers.items()
    found = await answer(watch, "parts", {}, {})
    assert (found.headers["Vary"], found.headers["ETag"]) == ("Accept-Encoding", watch.shown.tag)


async def test_a_report_that_is_shown_again_is_one_look_of_the_history() -> None:
    """Looks without an answer add no sample and no round."""
    watch = Watch("shop", script())
    await watch._once(script(group(2).evidence()))
    before = list(watch._history.samples), watch._history.rounds
    for _ in range(3):
        await watch._once(script(NoBrokerAnswers("away")))
    assert (list(watch._history.samples), watch._history.rounds) == before
    assert len(before[0]) == 1


async def test_a_page_whose_loop_has_ended_keeps_no_look_from_the_others() -> None:
    """The listener's server has just been stopped."""
    watch = Watch("shop", script())
    heard: list[str] = []

    def closed() -> None:
        heard.append("closed")
        raise RuntimeError("Event loop is closed")

    watch._listeners = [closed, lambda: heard.append("open"), closed]  # type: ignore[assignment]
    await watch._once(script(group(1).evidence()))
    assert heard == ["closed", "open", "closed"]

"""Edges of the page: a young machine, looks without news, saved looks, and ends of threads and streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.clients.groups import GroupNotFound, NoBrokerAnswers
from faust_assigner.page import mount, server, thread
from faust_assigner.page.history import KEPT_S, History, Move
from faust_assigner.page.look import Problem, _saved_problem
from faust_assigner.page.mount import PageService
from faust_assigner.page.scrub import scrubbed
from faust_assigner.page.story import story_of
from faust_assigner.page.tasks import families_of
from faust_assigner.page.thread import PageThread
from faust_assigner.page.watch import Watch
from faust_assigner.status.build import build
from faust_assigner.status.report import Difference, Report
from tests.support.page import Script
from tests.support.status import AT, LOG, group
from tests.unit.page.test_mount import app_of


def report_of(members: int = 2, **more: Any) -> Report:
    """A look at a group."""
    return replace(build(group(members).evidence()), **more)


# -- looks ----------------------------------------------------------------------------------------


def test_no_look_is_wanted_before_the_first_request_of_a_machine_that_has_just_started() -> None:
    """The monotonic clock begins at zero."""
    assert not Watch("shop", monotonic=lambda: 3.0)._is_wanted()


async def test_a_group_that_is_gone_has_no_report_and_silent_brokers_keep_the_last_one() -> None:
    """A look without a report is no sample of the history."""
    looks = (group(2).evidence(), NoBrokerAnswers("silent"), GroupNotFound("gone"))
    watch = Watch("shop", Script(iter(())), clock=lambda: AT)
    found = []
    for each in looks:
        await watch._once(Script(iter([each])))
        look = watch.shown.look
        title = None if look.problem is None else look.problem.title
        found.append((look.report is not None, title, len(look.history.samples)))
    assert found == [
        (True, None, 1),
        (True, "The brokers do not answer", 1),
        (False, "No such group", 1),
    ]
    assert [watch.shown.version, watch.shown.look.families] == [3, ()]


async def test_rounds_are_asked_for_once_for_each_round_and_number_of_answers() -> None:
    """A group in a rebalance is not asked; a failed request is repeated."""
    asked: list[int | None] = []
    failures = [True]

    class Looks:
        async def rounds(self, evidence: Any) -> tuple[()]:
            asked.append(evidence)
            if failures:
                failures.pop()
                raise OSError("gone")
            return ()

    looks: Any = Looks()
    watch = Watch("shop")
    base = report_of()
    assert base.decision is not None
    next_round = replace(base, decision=replace(base.decision, generation=99))
    with pytest.raises(OSError, match="gone"):
        await watch._ask_rounds(looks, 0, base)  # type: ignore[arg-type]
    reports = [
        base,
        base,
        replace(next_round, is_settled=False),
        next_round,
        replace(next_round, totals=replace(base.totals, answered=1)),
        replace(base, decision=None),
        replace(base, decision=None),
    ]
    for number, report in enumerate(reports, start=1):
        await watch._ask_rounds(looks, number, report)  # type: ignore[arg-type]
    assert asked == [0, 1, 4, 5, 6]


def test_a_drawn_problem_adds_no_sample() -> None:
    """The report below the problem is the last one again; before the first look the page says so."""
    watch = Watch("shop")
    problem = Problem(title="t", text="x")
    assert watch._drawn(report_of(), None, 1).look.problem is None
    assert watch._drawn(report_of(), problem, 2).look.problem is problem
    assert len(watch._history.samples) == 1
    shown = watch._drawn(None, problem, 0).look.problem
    assert shown is not None
    assert shown.title == "Looking at the group"


# -- content --------------------------------------------------------------------------------------


def test_hidden_values_of_a_setting_are_numbered_from_one() -> None:
    """Workers with different passwords stay apart; another setting keeps its values."""
    values = {"b": ("w0",), "a": ("w1", "w2")}
    found = scrubbed(Difference(name="DB_PASSWORD", values=values)).values
    assert found == {"(hidden) 1": ("w0",), "(hidden) 2": ("w1", "w2")}
    assert scrubbed(Difference(name="store", values=values)).values == values


def test_two_saved_looks_have_a_period_and_a_number() -> None:
    """A single look has its time alone."""
    one, two = report_of(taken_at=0.0), report_of(taken_at=3_661.0)
    assert "(1970-01-01 00:00:00 UTC)" in _saved_problem((one,), "f").text
    wanted = "From the file f (1970-01-01 00:00:00 to 01:01:01 UTC, 2 looks)."
    assert _saved_problem((one, two), "f").text.startswith(wanted)


def test_a_move_of_any_topic_of_a_task_is_in_its_story() -> None:
    """A leader reports the move of the changelog; another task's move is left out."""
    report = report_of()
    history = History()
    for key, target in ((f"{LOG}/0", "w1"), (f"{LOG}/1", "w0")):
        history._note_move(
            Move(key=key, at=AT, generation=1, source=None, target=target, was_warm=None)
        )
    story = story_of(report, families_of(report), history, "orders/0")
    assert story is not None
    assert [event.what for event in story.events] == ["w1 took over"]


@pytest.mark.parametrize(("later_s", "kept"), [(KEPT_S, 2), (KEPT_S + 1, 1)])
def test_a_sample_is_kept_for_exactly_its_time(later_s: float, kept: int) -> None:
    """The newest sample is always kept."""
    history = History()
    for at in (AT, AT + later_s):
        history._note_sample(report_of(taken_at=at))
    assert len(history.samples) == kept


@pytest.mark.parametrize("is_settled", [True, False])
def test_topics_without_owners_are_tasks_during_a_rebalance_only(is_settled: bool) -> None:
    """In a settled group they only have committed offsets."""
    base = report_of()
    partitions = tuple(replace(one, owner=None) for one in base.partitions)
    found = families_of(replace(base, partitions=partitions, is_settled=is_settled))
    topics = {topic for family in found for topic in family.topics}
    assert topics == (set() if is_settled else {one.topic for one in partitions})


# -- threads and streams --------------------------------------------------------------------------


def test_a_page_that_is_stopped_before_its_thread_has_a_loop_ends_later() -> None:
    """The thread looks for the mark once it has its loop; a page without a thread has ended."""
    page = PageThread(app_of())
    assert page.stop(0.0)
    assert page._is_ended.is_set()


def test_the_page_knows_the_server_that_it_is_added_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page takes connections from the sockets of this server."""
    calls: list[Any] = []
    monkeypatch.setattr(
        mount.blueprint, "register", lambda app, url_prefix: calls.append((app, url_prefix))
    )

    def page(path: str, name: str) -> Any:
        calls.append((path, name))
        return calls.append

    service = PageService(app_of())
    web = SimpleNamespace(app=SimpleNamespace(page=page))
    service.add_to(SimpleNamespace(app=SimpleNamespace(page=page)))
    calls.clear()
    service.add_to(web)  # a web server that replaces the first one
    assert service.page.server is web
    home = ("/assignor", "faust_assigner_page:home")
    assert calls == [(web.app, "/assignor"), home, mount._Home]


async def test_the_end_of_the_page_waits_for_its_tasks_and_then_closes_its_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A task may close connections when it is cancelled."""
    calls: list[str] = []

    class Runner:
        def __init__(self, *_: Any, **__: Any) -> None:
            pass

        async def setup(self) -> None:
            calls.append("set up")

        async def cleanup(self) -> None:
            calls.append("cleaned up")

    async def run() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            calls.append("task ended")

    monkeypatch.setattr(thread.aiohttp_web, "AppRunner", Runner)
    page = PageThread(app_of())
    monkeypatch.setattr(page.watch, "run", run)
    page._app = SimpleNamespace(conf=SimpleNamespace(web_in_thread=True, web_ssl_context=None))
    serving = asyncio.create_task(page._serve(asyncio.get_running_loop()))
    for _ in range(3):
        await asyncio.sleep(0)
    assert page._ended is not None
    page._ended.set()
    await serving
    assert calls == ["set up", "task ended", "cleaned up"]


async def test_a_browser_that_goes_away_ends_its_stream_without_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The stream's place is free again."""
    calls: list[Any] = []

    class Response:
        def __init__(self, headers: Any) -> None:
            calls.append(headers)

        async def prepare(self, request: Any) -> None:
            calls.append(request)

        async def write(self, data: bytes) -> None:
            calls.append(data)
            if data == b"second":
                raise ConnectionResetError

    async def events() -> AsyncIterator[bytes]:
        try:
            for each in (b"first", b"second", b"third"):
                yield each
        finally:
            calls.append("closed")

    monkeypatch.setattr(server.web, "StreamResponse", Response)
    watch: Any = SimpleNamespace(events=events)
    request: Any = "request"
    found = await server._stream_events(watch, request)
    assert isinstance(found, Response)
    assert calls == [server.EVENT_HEADERS, "request", b"first", b"second", "closed"]

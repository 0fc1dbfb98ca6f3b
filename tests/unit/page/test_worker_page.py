"""The page in a worker: the arguments of its parts, its sign of life, and its ends."""

from __future__ import annotations

import asyncio
import socket
import time
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web

from faust_assigner.page import mount, thread
from faust_assigner.page.history import History, Move
from faust_assigner.page.mount import PageService
from faust_assigner.page.takeover import _accepted
from faust_assigner.page.tasks import Family, Task
from faust_assigner.page.thread import PageThread
from faust_assigner.status.report import Copy, Partition
from tests.support.page import fleet
from tests.support.waiting import PATIENCE_S
from tests.unit.page.test_history import AT, at
from tests.unit.page.test_mount import app_of


class Watched:
    """A fake thread of the page, which records its calls and signs of life."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.turns: list[float] = []
        self.turned_twice = asyncio.Event()

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "turned_at":
            self.turns.append(value)
            if len(self.turns) == 2:
                self.turned_twice.set()

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Note the start."""
        self.told.append(("start", loop))

    def stop(self, seconds: float) -> bool:
        """Note the stop."""
        self.told.append(("stop", seconds))
        return True


async def test_a_started_service_shows_again_and_again_that_the_loop_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The sign of life is of the monotonic clock, from the service's start until its stop."""
    monkeypatch.setattr(mount, "TURN_S", 0.001)
    service = PageService(app_of())
    fake: Any = Watched()
    service.page = fake
    before = time.monotonic()
    await service.start()
    await asyncio.wait_for(fake.turned_twice.wait(), PATIENCE_S)
    await service.stop()
    assert fake.told == [("start", asyncio.get_running_loop()), ("stop", mount.STOP_S)]
    assert all(before <= one <= time.monotonic() for one in fake.turns)


class FakeThread:
    """A thread that never runs or ends."""

    def __init__(self, told: list[Any], **options: Any) -> None:
        self.told = told
        told.append(options)

    def start(self) -> None:
        """Note the start."""
        self.told.append("start")

    def join(self, seconds: float | None = None) -> None:
        """Note the time limit."""
        self.told.append(seconds)

    def is_alive(self) -> bool:
        """Return that the thread has not ended."""
        return True


async def test_the_thread_cannot_hold_up_the_end_of_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is a daemon, and a stop waits for the given time only."""
    told: list[Any] = []
    page = PageThread(app_of())
    fake = SimpleNamespace(Thread=lambda **options: FakeThread(told, **options))
    monkeypatch.setattr(thread, "threading", fake)
    loop: Any = "loop"
    page.start(loop)
    assert page.stop(7.5) is False
    made, *rest = told
    assert (made["args"], made["name"], made["daemon"]) == (("loop",), "assignor-page", True)
    assert rest == ["start", 7.5]


async def test_a_second_stop_finds_the_ended_loop() -> None:
    """Faust may stop a service that has already stopped."""
    page = PageThread(app_of())
    page.start(asyncio.get_running_loop())
    await asyncio.sleep(0.05)
    assert await asyncio.to_thread(page.stop, PATIENCE_S)
    assert await asyncio.to_thread(page.stop, PATIENCE_S)


async def test_a_bug_of_the_page_is_logged_and_the_worker_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The application has the worker's prefix, and ends each connection with its answer."""
    asked: list[Any] = []

    def application(*given: Any, **more: Any) -> Any:
        asked.append((given, more))
        raise ZeroDivisionError

    monkeypatch.setattr(thread, "application", application)
    page = PageThread(app_of())
    page.start(asyncio.get_running_loop())
    assert await asyncio.to_thread(page.stop, PATIENCE_S)
    assert asked == [((page.watch,), {"prefix": "/assignor", "closes": True})]
    assert "The page of this worker has failed" in caplog.text


def test_a_takeover_compares_signs_of_life_with_the_clock_that_dates_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A change of the wall clock is no sign of a blocked loop."""
    monkeypatch.setattr(thread, "Takeover", lambda **given: given)
    page = PageThread(app_of())
    loop: Any = object()
    found: Any = page._takeover(SimpleNamespace(), loop)
    assert (found["clock"], found["their_loop"]) == (time.monotonic, loop)
    assert [found["is_ours"](path) for path in ("parts", "", "/parts", "/assignor/parts")] == [
        *(False, False, False),
        True,
    ]


async def test_the_address_without_a_slash_leads_to_the_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The links of the page are relative to the address with the slash."""
    pages: list[Any] = []
    routes: list[Any] = []
    monkeypatch.setattr(
        mount.blueprint, "register", lambda *given, **more: routes.append((given, more))
    )
    page: Any = lambda *given, **more: lambda view: pages.append((given, view))  # noqa: E731
    server: Any = SimpleNamespace(app=SimpleNamespace(page=page))
    service = PageService(app_of())
    service.add_to(server)
    assert service.page.server is server
    assert routes == [((server.app,), {"url_prefix": "/assignor"})]
    [(path, view)] = pages
    assert path == ("/assignor",)
    with pytest.raises(web.HTTPFound) as found:
        await view.get(SimpleNamespace(), None)
    assert found.value.location == "/assignor/"


def test_a_socket_that_does_not_listen_gives_no_connection() -> None:
    """The worker's server may end while the page's thread looks at its sockets."""
    with socket.socket() as plain:
        assert _accepted(plain) is None


# -- the history


def test_the_moves_of_a_task_are_not_those_of_a_longer_number() -> None:
    """Numbers one and ten begin with the same digit; the newest move is first."""
    history = History()
    for number, key in enumerate(("o/10", "o/1", "p/1", "o/1")):
        history._note_move(
            Move(key=key, at=AT + number, generation=number, source="a", target="b", was_warm=None)
        )
    assert [(one.key, one.generation) for one in history.moves_of(["o/1", "q/1"])] == [
        ("o/1", 3),
        ("o/1", 1),
    ]


def test_a_move_to_any_of_several_copies_is_warm() -> None:
    """The copies of the query before the move count, whichever member has them."""
    report = at(fleet(4), 0.0)
    assert report.is_settled

    def family(owner: str, *copies: str) -> Family:
        held = tuple(
            Copy(member=name, is_warmup=False, lag=0, seconds=None, is_measured=True)
            for name in copies
        )
        log = Partition(
            topic="g-t-changelog",
            partition=4,
            is_changelog=True,
            owner=owner,
            committed=None,
            end=9,
            lag=None,
            standing=None,
            copies=held,
        )
        task = Task(key="o/4", number=4, owner=owner, partitions=(log,))
        return Family(topics=("o",), label="o", tasks=(task,))

    history = History()
    for owner, copies in (("a", ("b", "c")), ("c", ("b",)), ("d", ("b",)), ("b", ())):
        history.note(report, [family(owner, *copies)])
    found = history.moves_of(["o/4"])
    assert {(one.source, one.target, one.was_warm) for one in found} == {
        ("a", "c", True),
        ("c", "d", False),
        ("d", "b", True),
    }

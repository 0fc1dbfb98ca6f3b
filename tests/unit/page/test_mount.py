"""The page's thread in a worker: its start, its end, and its settings."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.app.metrics.probes import MARK as METRICS
from faust_assigner.page import mount, thread
from faust_assigner.page.mount import MARK
from faust_assigner.page.thread import PageThread, where_of
from faust_assigner.page.watch import SHARE, WORKER_SHARE
from faust_assigner.settings.table import PAGE
from tests.support.faust_group import make_app
from tests.support.waiting import PATIENCE_S


def app_of(**options: Any) -> Any:
    """A configured app."""
    made = make_app(
        "http://w",
        assignor="faust_assigner:PartitionAssignor",
        broker="kafka://127.0.0.1:1",
        **options,
    )
    made.finalize()
    return made


@pytest.mark.parametrize("pause_s", [0.0, 0.3])
async def test_the_thread_ends_when_it_is_stopped(pause_s: float) -> None:
    """The thread also ends when it is stopped right after its start."""
    page = PageThread(app_of())
    page.start(asyncio.get_running_loop())
    await asyncio.sleep(pause_s)
    assert await asyncio.to_thread(page.stop, PATIENCE_S)
    assert "assignor-page" not in {thread.name for thread in threading.enumerate()}


async def test_a_thread_that_was_stopped_serves_again_after_a_second_start() -> None:
    """Faust restarts a worker's service after a crash."""
    page = PageThread(app_of())
    for _ in range(2):
        page.start(asyncio.get_running_loop())
        running = page._thread
        assert running is not None
        await asyncio.to_thread(running.join, 0.5)
        assert running.is_alive()
        assert await asyncio.to_thread(page.stop, PATIENCE_S)


async def test_the_thread_ends_while_brokers_are_asked_in_vain() -> None:
    """The app's broker does not exist."""
    page = PageThread(app_of())
    page.watch.touch()
    page.start(asyncio.get_running_loop())
    await asyncio.sleep(0.3)
    assert await asyncio.to_thread(page.stop, PATIENCE_S)


def test_the_page_looks_at_the_apps_own_group_with_its_connection() -> None:
    """The page's client id differs from the worker's, so brokers can distinguish them."""
    app = app_of(faust_assigner_urls="10.0.0.0/8")
    where = where_of(app)
    assert where.group_id == app.conf.id
    assert where.connection["bootstrap_servers"] == ["127.0.0.1:1"]
    assert where.connection["client_id"].endswith("-page")
    assert where.patterns == ("10.0.0.0/8",)
    assert where.workers == (str(app.conf.canonical_url),)


def test_the_page_of_a_worker_takes_less_of_a_core_than_a_separate_one() -> None:
    """A worker also processes records; the larger share is for a process that only looks."""
    assert PageThread(app_of()).watch.share == WORKER_SHARE < SHARE


def test_every_worker_has_a_page_unless_it_is_turned_off() -> None:
    """The page has one setting; a second installation starts no second thread."""
    assert PAGE.default is True
    on = app_of()
    assert mount.install(on) is getattr(on, MARK) is mount.install(on)
    assert getattr(app_of(faust_assigner_page=False), MARK, None) is None


@pytest.mark.parametrize(
    ("target", "is_ours"),
    [
        ("/assignor/", True),
        ("/assignor/story?t=orders/1", True),
        ("/assignor/events", True),
        ("/assignor/status", False),
        ("/assignor/../metrics", False),
        ("/", False),
    ],
)
def test_only_requests_for_the_page_are_taken_over(target: str, is_ours: bool) -> None:
    """Queries do not matter; the probes of a blocked worker wait for the worker's own loop."""
    assert thread._is_of_page(target) is is_ours


def test_the_page_needs_the_metrics_and_starts_and_stops_with_them() -> None:
    """Without the metrics a worker has no status to show."""
    app = app_of()
    service = getattr(app, MARK)
    assert service in getattr(app, METRICS)._children
    assert mount.install(app) is service
    delattr(app, MARK)
    delattr(app, METRICS)
    assert mount.install(app) is None
    assert not hasattr(app, MARK)


def test_a_worker_that_does_not_answer_holds_up_the_page_for_seconds_only() -> None:
    """Each look queries the worker's status."""
    assert where_of(app_of()).deadline_s == thread.DEADLINE_S


@pytest.mark.parametrize(
    ("changes", "takes_over"),
    [({}, True), ({"web_in_thread": True}, False), ({"web_ssl_context": object()}, False)],
)
async def test_connections_are_taken_over_from_a_plain_server_on_the_workers_loop_only(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], *, takes_over: bool
) -> None:
    """A server in a thread accepts connections itself, and TLS hides the path."""
    page = PageThread(app_of())
    conf = {"web_in_thread": False, "web_ssl_context": None, **changes}
    page._app = SimpleNamespace(conf=SimpleNamespace(**conf))
    made: list[Any] = []

    class Taking:
        async def run(self) -> None:
            """Do nothing."""

    monkeypatch.setattr(page, "_takeover", lambda *given: made.append(given) or Taking())
    page._is_ended.set()
    await asyncio.wait_for(page._serve(asyncio.get_running_loop()), PATIENCE_S)
    assert bool(made) is takes_over


def served(*sites: Any) -> Any:
    """Faust's web server with these sites."""
    return SimpleNamespace(_runner=SimpleNamespace(sites=sites, server=lambda: "a protocol"))


def site(*sockets: str) -> Any:
    """A site that listens on these sockets."""
    return SimpleNamespace(_server=SimpleNamespace(sockets=sockets))


def test_connections_are_taken_over_on_all_sockets_that_the_worker_listens_on() -> None:
    """Before the start there are no sockets, and an ended site has none."""
    page = PageThread(app_of())
    assert page._listening() == []
    closed = SimpleNamespace(_server=SimpleNamespace(sockets=None))
    page.server = served(site("a", "b"), closed, SimpleNamespace(), site("c"))
    assert page._listening() == ["a", "b", "c"]


def test_a_takeover_reads_the_latest_sign_of_life_and_the_latest_server() -> None:
    """Both values change while the thread runs."""
    page = PageThread(app_of())
    loop: Any = object()
    found = page._takeover(SimpleNamespace(server=lambda: "ours"), loop)
    page.turned_at, page.server = 77.0, served(site("a"))
    assert (found._turned_at(), list(found._sockets())) == (77.0, ["a"])
    made: Any = found._ours(), found._theirs(), found._their_loop
    assert made == ("ours", "a protocol", loop)
    assert [found._is_ours(path) for path in ("/assignor/", "/metrics")] == [True, False]


@pytest.mark.parametrize("ends", [True, False])
async def test_a_thread_that_does_not_end_is_left_behind_with_a_warning(
    caplog: pytest.LogCaptureFixture, *, ends: bool
) -> None:
    """The worker stops even if the thread does not end."""
    service = mount.PageService(app_of())
    asked: list[float] = []
    service.page = SimpleNamespace(stop=lambda seconds: asked.append(seconds) or ends)  # type: ignore[assignment]
    await service.on_stop()
    assert asked == [mount.STOP_S]
    assert ("did not end within 5 s" in caplog.text) is not ends


async def test_the_sign_of_life_is_as_young_as_the_start_of_the_thread() -> None:
    """A worker that starts late must not count as blocked."""
    page = PageThread(app_of())
    page.turned_at = -1_000.0
    page.start(asyncio.get_running_loop())
    assert page.turned_at > -1_000.0
    assert await asyncio.to_thread(page.stop, PATIENCE_S)


def test_a_page_that_was_never_started_has_ended() -> None:
    """A worker that fails before its services start still stops them."""
    assert PageThread(app_of()).stop(0.0)


async def test_a_worker_without_a_web_server_starts_the_thread_at_the_first_request_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread's imports take half of a worker's start; an ASGI application may still ask."""
    monkeypatch.setattr(mount, "STOP_S", PATIENCE_S)
    service = mount.PageService(app_of(web_enabled=False))
    await service.start()
    assert "page" not in vars(service)
    assert service.watch is service.watch
    running = service.page._thread
    assert running is not None
    assert running.is_alive()
    await service.stop()
    assert not running.is_alive()


async def test_a_request_outside_the_workers_life_starts_no_thread() -> None:
    """Nothing would end the thread."""
    service = mount.PageService(app_of())
    assert service.watch.group
    assert service.page._thread is None
    await service.start()
    running = service.page._thread
    await service.stop()
    assert service.watch.group
    assert service.page._thread is running is not None


async def test_the_thread_starts_again_with_its_worker() -> None:
    """Faust restarts a worker's services after a crash."""
    service = mount.PageService(app_of())
    for _ in range(2):
        await service.on_start()
        running = service.page._thread
        assert running is not None
        assert running.is_alive()
        await service.on_stop()


def test_a_worker_is_configured_without_the_imports_of_the_page() -> None:
    """kio, jinja2 and the reader of groups would double the time of a worker's start."""
    script = (
        "import faust, sys; app = faust.App('a', PartitionAssignor='faust_assigner:PartitionAssignor');"
        "app.finalize(); app.on_webserver_init(app.web); print(hasattr(app, '_faust_assigner_page'),"
        "{'kio', 'jinja2', 'faust_assigner.clients', 'faust_assigner.coordinator'} & sys.modules.keys())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[0] == "True set()"

"""The page of real workers at ``/assignor/``: during a join, and while a worker's loop is blocked."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from faust_assigner.testing.broker import broker_process
from tests.support.browser import chromium, tab
from tests.support.waiting import wait_until
from tests.support.workers.load import Load
from tests.support.workers.with_web import Measured

pytestmark = pytest.mark.processes
PARTITIONS = 6


@dataclass
class Paged(Measured):
    """Workers whose event loop can be held up by a page."""

    module: str = "tests.support.workers.paged"

    def shows_all(self, name: str) -> bool:
        """Return whether a worker's page has exactly one good row per living worker."""
        page, living = self.page(name), len(self.living())
        return page.count('<tr class="good"') == page.count("data-name=") == living

    def page(self, name: str, path: str = "") -> str:
        """Return the page's text; "" if the page does not answer within ten seconds."""
        try:
            with urllib.request.urlopen(f"{self.url(name)}/assignor/{path}", timeout=10) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Paged]:
    """Two workers under a load."""
    folder, app_id = tmp_path_factory.mktemp("paged"), f"paged-{time.time_ns()}"
    with broker_process() as broker:
        made = Paged(app_id, broker.bootstrap, PARTITIONS, folder, session_s=60.0)
        load = Load(broker.bootstrap, app_id, PARTITIONS)
        try:
            load.prepare(waiting=5)
            load.start()
            for name in ("a", "b"):
                made.start(name)
            wait_until(
                lambda: all(made.status(name, "ready")[0] == 200 for name in "ab"), seconds=150
            )
            yield made
        finally:
            made.stop()
            load.stop()


@pytest.mark.slow
@pytest.mark.timeout(280)
def test_each_worker_shows_the_whole_group(fleet: Paged) -> None:
    """Any worker answers, at the address with and without a slash."""
    for name in "ab":
        wait_until(
            lambda name=name: fleet.shows_all(name),
            lambda name=name: fleet.page(name)[-3000:],
            seconds=60,
        )
        assert fleet.get(name, "/assignor")[1].startswith("<!doctype html>")
        assert f"{fleet.app_id}-orders" in fleet.page(name)


@pytest.mark.slow
@pytest.mark.timeout(280)
def test_the_page_answers_while_the_workers_loop_is_held_up(fleet: Paged) -> None:
    """Pages answer on the worker's own port; the worker's other routes wait and lose no request."""
    wait_until(lambda: fleet.shows_all("a"), seconds=60)
    held: list[str] = []

    def hold() -> None:
        with urllib.request.urlopen(f"{fleet.url('a')}/hold/12", timeout=60) as answer:
            held.append(answer.read().decode())

    other: list[str] = []

    def ask() -> None:
        with urllib.request.urlopen(f"{fleet.url('a')}/assignor/live", timeout=60) as answer:
            other.append(answer.read().decode())

    threads = [threading.Thread(target=hold), threading.Thread(target=ask)]
    threads[0].start()
    time.sleep(0.5)
    threads[1].start()
    began = time.monotonic()
    page = fleet.page("a")
    assert time.monotonic() - began < 9, "it was answered when the loop went on"
    assert held == other == []
    assert page.count("data-name=") == len(fleet.living())
    assert json.loads(fleet.page("a", "parts"))["parts"]["grid"]
    with urllib.request.urlopen(f"{fleet.url('a')}/assignor/events", timeout=9) as stream:
        assert stream.readline() == b"retry: 2000\n"
    assert held == []
    for thread in threads:
        thread.join(60)
    assert json.loads(held[0]) == {"held": "12"}
    assert json.loads(other[0])["status"] == "live"


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.timeout(280)
async def test_an_open_page_follows_a_join(
    fleet: Paged, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A third row and the round's reason appear; the row disappears with its worker."""
    folder = tmp_path_factory.mktemp("chromium")
    with chromium(folder) as port:
        async with tab(port) as found:
            await found.look()
            await found.open(f"{fleet.url('a')}/assignor/")
            rows = "document.querySelectorAll('.grid tbody tr').length"
            await found.until(f"{rows} === 2")
            fleet.start("c")
            try:
                await found.until(f"{rows} === 3", seconds=120)
                await found.until(
                    "document.querySelector('#rounds').innerText.includes('members joined')",
                    seconds=60,
                )
            finally:
                fleet.terminate("c")
            await found.until(f"{rows} === 2", seconds=60)
            assert found.complaints == []

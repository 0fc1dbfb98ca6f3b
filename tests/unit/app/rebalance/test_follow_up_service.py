"""The service that requests follow-up rounds: its installation, its settings and its end."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from faust_assigner.app.rebalance import copy_offsets, follow_up
from faust_assigner.app.rebalance.follow_up import FollowUp, install
from tests.support.faust_group import make_app
from tests.support.waiting import PATIENCE_S
from tests.unit.app.rebalance.test_follow_up import A, App, service


async def test_the_service_ends_with_its_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """No task remains, not even after failing looks."""
    monkeypatch.setattr(follow_up, "LOOK_INTERVAL_S", 0.001)
    monkeypatch.setattr(copy_offsets, "ASK_S", 10 * PATIENCE_S)
    app = App({A: 1}, {A: 0})
    looked = 0

    async def silent(*_: TP) -> dict[TP, int]:
        nonlocal looked
        looked += 1
        raise ConnectionError("nobody answers")

    app.asked.end_offsets = silent
    before = asyncio.all_tasks()
    watch = service(app, 0.001)
    await watch.start()
    async with asyncio.timeout(PATIENCE_S):
        while looked < 3:
            await asyncio.sleep(0.005)
    await watch.stop()
    async with asyncio.timeout(PATIENCE_S):
        while asyncio.all_tasks() != before:
            await asyncio.sleep(0)
    assert app.thread.rejoins == 0


async def test_a_look_that_is_cancelled_leaves_no_request_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The requests run on the consumer's thread and would otherwise last for two seconds more."""
    monkeypatch.setattr(copy_offsets, "ASK_S", 10 * PATIENCE_S)
    app = App({A: 1}, {A: 0})
    began = asyncio.Event()

    async def silent(*_: TP) -> dict[TP, int]:
        began.set()
        await asyncio.Event().wait()
        return {}

    app.asked.end_offsets = silent
    before = asyncio.all_tasks()
    watch = service(app, 0.001)
    await watch.look(100.0)  # begins the cool-down
    look = asyncio.create_task(watch.look(101.0))
    async with asyncio.timeout(PATIENCE_S):
        await began.wait()
        look.cancel()
        while asyncio.all_tasks() != before:
            await asyncio.sleep(0)
    assert look.cancelled()


def configured(**options: Any) -> Any:
    """Return an app after the first read of its settings, at which Faust calls our fixup."""
    app = make_app("http://w", **options)
    assert app.conf.id == "shop"
    return app


def test_it_is_installed_with_the_app() -> None:
    """The app has the service once, among its services."""
    app = configured()
    assert [type(s) for s in app._extra_services] == [FollowUp]
    assert install(app) is app._extra_services[0]
    assert len(app._extra_services) == 1


@pytest.mark.parametrize(
    ("said", "taken"),
    [
        (None, [None]),
        ("5", [5.0]),
        (0, []),
        ("0", []),
        ("-1", [None]),
        ("soon", [None]),
        ("inf", [None]),
        ("nan", [None]),
    ],
)
def test_the_setting_is_seconds_and_zero_turns_it_off(said: Any, taken: list[float | None]) -> None:
    """An invalid value is logged and replaced by the default."""
    app = configured(faust_assigner_follow_up_s=said)
    assert [s.cool_down_s for s in app._extra_services] == taken


def test_the_deadline_is_a_setting_and_off_with_warm_ups() -> None:
    """The default is 900 s."""
    assert configured()._extra_services[0].deadlines.deadline_s == 900
    assert (
        configured(faust_assigner_warmup_deadline_s="60")._extra_services[0].deadlines.deadline_s
        == 60
    )
    assert configured(faust_assigner_warmups="0")._extra_services[0].deadlines.deadline_s is None


async def test_a_service_looks_once_a_second_by_the_clock_of_its_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each look follows a pause; a failed look does not end the service."""
    watch, acts = service(App({A: 1}, {A: 0})), list[Any]()
    monkeypatch.setattr(
        follow_up.asyncio, "get_running_loop", lambda: SimpleNamespace(time=lambda: 77.5)
    )

    async def sleep(seconds: float) -> None:
        acts.append(("sleep", seconds))

    async def look(now: float) -> None:
        acts.append(("look", now))
        if acts.count(("look", 77.5)) == 2:
            watch._stopped.set()
        raise ConnectionError("silent")

    monkeypatch.setattr(watch, "sleep", sleep)
    monkeypatch.setattr(watch, "look", look)
    await FollowUp._watch.fun(watch)
    assert acts == [("sleep", follow_up.LOOK_INTERVAL_S), ("look", 77.5)] * 2

"""Parts of an app at their edges: a stop amid a pause, empty variables, parts without one another."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from faust.assignor.copartitioned_assignor import CopartitionedAssignor

from faust_assigner.app import fixup, settings, stock
from faust_assigner.app.retry import retry
from faust_assigner.app.stock import StockLivelock
from faust_assigner.errors import HostMismatch
from faust_assigner.settings.table import RACK
from tests.unit.app.test_settings_read import app_of


@pytest.mark.parametrize("stops_in", ["step", "pause", "second pause"])
async def test_a_service_that_stops_repeats_no_step(stops_in: str) -> None:
    """Also if it stops during the pause; a stop amid the last step ends the wait after the pause."""
    acts: list[Any] = []
    service = SimpleNamespace(should_stop=False)

    async def sleep(seconds: float) -> None:
        acts.append(seconds)
        service.should_stop |= len(acts) == {"pause": 2, "second pause": 4}.get(stops_in)

    async def step() -> None:
        acts.append("step")
        service.should_stop |= stops_in == "step"
        raise TimeoutError

    service.sleep = sleep
    with pytest.raises(asyncio.CancelledError, match="a question"):
        await retry(service, "a question", step)
    every = ["step", 0.5, "step", 1.0]
    assert acts == (every if stops_in == "second pause" else every[:2])


def test_an_empty_variable_of_the_app_goes_before_that_of_all_apps() -> None:
    """It switches the setting off for this app alone."""
    env = {f"SHOP_{RACK.name}": "", RACK.name: "r1"}
    assert settings.read(app_of(env), RACK) is None
    assert settings.read(app_of({RACK.name: "r1"}), RACK) == "r1"


def test_stocks_evictions_are_counted_up_to_their_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit itself is allowed; each assignment counts its own."""
    monkeypatch.setattr(stock, "MAX_EVICTIONS", 3)
    freed: list[Any] = []

    def free(self: Any, assignment: Any, active: bool) -> int:
        freed.append((assignment, active))
        return 7

    monkeypatch.setattr(CopartitionedAssignor, "_free_up_partition", free)
    for _ in range(2):
        bounded = stock._Bounded.__new__(stock._Bounded)
        bounded.num_partitions, bounded.replicas = 5, 2
        of: Any = object()
        assert [bounded._free_up_partition(of, active) for active in (True, False, True)] == [7] * 3
        assert freed == [(of, True), (of, False), (of, True)]
        freed.clear()
        with pytest.raises(StockLivelock) as caught:
            bounded._free_up_partition(of, True)
        assert str(caught.value) == ("5 partitions, 2 standbys: no end after 3 evictions")
        assert freed == []


@pytest.mark.parametrize("parts", [("metrics", "page"), ("metrics",), ("page",), ("ledger",)])
def test_the_page_is_mounted_if_it_fits_whatever_else_does(
    monkeypatch: pytest.MonkeyPatch, parts: tuple[str, ...]
) -> None:
    """All parts that fit are installed before it."""
    acts: list[Any] = []

    def import_module(name: str) -> Any:
        return SimpleNamespace(install=lambda *given: acts.append((name, *given[1:])))

    app: Any = SimpleNamespace()
    monkeypatch.setattr(fixup, "import_module", import_module)
    monkeypatch.setattr(fixup, "chose_our_assignor", lambda app: True)
    monkeypatch.setattr(fixup, "parts_that_fit", lambda app: parts)
    for name in ("check_names", "check_heartbeat"):
        monkeypatch.setattr(fixup.settings, name, lambda app, name=name: acts.append(name))
    it = fixup.Fixup.__new__(fixup.Fixup)
    it._when_configured(app)
    mounted = [("faust_assigner.page.mount",)] if "page" in parts else []
    assert acts == [
        "check_names",
        "check_heartbeat",
        ("faust_assigner.app.compose", parts),
        *mounted,
    ]


def test_only_a_mismatch_of_names_leaves_a_part_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The part is named; another error of the check is raised, so that the app does not start."""
    asked: list[Any] = []
    errors: list[Exception | None] = [HostMismatch("no such name"), None, ValueError("a bug")]

    def demand(parts: Any, *, versions: Any) -> None:
        asked.append((parts, versions))
        if (error := errors.pop(0)) is not None:
            raise error

    monkeypatch.setattr(fixup, "demand", demand)
    assert fixup._fits_host("page") is False
    assert caplog.messages == ["The app starts without the part page: no such name"]
    assert fixup._fits_host("metrics") is True
    with pytest.raises(ValueError, match="a bug"):
        fixup._fits_host("router")
    assert asked == [({name}, {}) for name in ("page", "metrics", "router")]

"""Parts of the kit that are called twice, and a broker's connection that loses a response."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.testing import apps, processes
from faust_assigner.testing.clock import Clock, MovedLoop
from faust_assigner.testing.faults import Faults, FaultyConnection
from faust_assigner.testing.processes import Worker
from faust_assigner.testing.reporting import State
from tests.unit.testing.test_lives import Apps
from tests.unit.testing.test_lives import Process as Signalled


def test_an_app_starts_again_in_its_folder_and_appends_to_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folders above it are made at the first start."""
    lives = iter((b"first\n", b"second\n"))
    monkeypatch.setattr(
        processes.subprocess, "Popen", lambda command, **more: more["stdout"].write(next(lives))
    )
    fleet = Apps(tmp_path / "deep" / "fleet")
    for _ in range(2):
        fleet.launch("c", "shop.app", {}, level="warn")
    assert (fleet.folder / "c" / "log").read_bytes() == b"first\nsecond\n"


def test_a_worker_has_the_variables_of_the_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The orders of the kit replace a variable of the same name."""
    monkeypatch.setenv("KIT_APP", "other.app")
    monkeypatch.setenv("KIT_Y", "kept")
    started: list[Any] = []
    monkeypatch.setattr(
        processes.subprocess, "Popen", lambda command, **more: started.append(more["env"])
    )
    Worker.launch("w", tmp_path, "shop.app", {"a": 1}, State())
    [env] = started
    assert (env["KIT_APP"], env["KIT_Y"], env["KIT_SETTINGS"]) == ("shop.app", "kept", '{"a": 1}')


def test_a_thawed_worker_gets_no_second_signal(tmp_path: Path) -> None:
    """It may be frozen and thawed again."""
    process = Signalled()
    made: Any = Worker("w", tmp_path, process)  # type: ignore[arg-type]
    for _ in range(2):
        made.freeze()
        made.thaw()
        assert not made.is_frozen
        made.thaw()
    assert [number.name for _, number in process.calls] == ["SIGSTOP", "SIGCONT"] * 2


def test_the_variables_of_the_kit_end_with_the_block_and_given_ones_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A test may change or remove a variable within the block."""
    first, second = apps.ENVIRONMENT
    monkeypatch.setenv(first, "7")
    monkeypatch.delenv(second, raising=False)
    for keeps in (True, False):
        with apps.environment():
            assert (os.environ[first], os.environ[second]) == ("7", apps.ENVIRONMENT[second])
            if not keeps:
                del os.environ[second]
        assert (os.environ[first], second in os.environ) == ("7", False)


def test_the_level_of_modes_timers_is_restored_after_the_block() -> None:
    """Within the block late timers are not logged."""
    logger = logging.getLogger("mode.timers")
    before = logger.level
    try:
        logger.setLevel(logging.INFO)
        with Clock().as_time():
            assert logger.level == logging.ERROR
        assert logger.level == logging.INFO
    finally:
        logger.setLevel(before)


def test_a_timer_runs_in_its_own_context_with_its_arguments() -> None:
    """The loop passes both on."""
    clock = Clock()
    clock.hold()
    loop, name = MovedLoop(clock), contextvars.ContextVar("name", default="none")
    context = contextvars.copy_context()
    context.run(name.set, "of the timer")
    seen: list[Any] = []

    async def wait() -> None:
        loop.call_at(loop.time() + 5.0, lambda *given: seen.append((name.get(), given)), 1, 2,
                     context=context)  # fmt: skip
        loop.extra_s += 5.0
        while not seen:
            await asyncio.sleep(0)

    loop.run_until_complete(wait())
    loop.close()
    assert seen == [("of the timer", (1, 2))]


def test_the_first_of_two_losses_of_one_client_is_used_up_first() -> None:
    """A loss of any API that came first takes the response that the second one names."""
    faults = Faults()
    faults.lose("a")
    faults.lose("a", 11)
    assert [faults.loses("a", key) for key in (11, 12, 11, 11)] == [True, False, True, False]
    assert faults.lost == 2


def test_a_lost_response_ends_the_connection_and_another_one_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The loss is of the client and the API in the header; each request is decoded."""
    base = FaultyConnection.__mro__[1]
    events: list[Any] = []
    monkeypatch.setattr(base, "__init__", lambda it, *given: events.append(given))
    monkeypatch.setattr(base, "_respond", lambda it, *given: events.append(given))
    server, listener = object(), object()
    made: Any = FaultyConnection(server, listener)  # type: ignore[arg-type]
    assert (made._client_id, made._waiting, made._first) == (None, b"", b"")
    made.faults, made.abort = Faults(), lambda: events.append("abort")
    made.faults.lose("a", 11)
    headers = [
        SimpleNamespace(client_id=name, api_key=key, api_version=11)
        for name, key in (("b", 11), ("a", 3), ("a", 11), ("a", 11))
    ]
    for header in headers:
        made._respond(header, [b"answer"])
    sent = [(header, [b"answer"]) for header in headers]
    assert events == [(server, listener), sent[0], sent[1], "abort", sent[3]]
    assert made._answer_repeated(b"frame") is False

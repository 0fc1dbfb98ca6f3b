"""The reports of failed tests."""

from __future__ import annotations

import ast
import contextlib
import gc
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import without_collector

SOURCE = "\n".join(f"def f{n}(a):\n    return [a * {n} for b in a if b]" for n in range(60))


class Slow:
    """Garbage that lets another thread run while the collector removes it."""

    def __init__(self) -> None:
        self.own: Any = self

    def __del__(self) -> None:
        time.sleep(0)


@pytest.fixture
def parsing() -> Iterator[None]:
    """Let another thread parse during the test, and let the threads take turns often."""
    is_over, interval, threshold = threading.Event(), sys.getswitchinterval(), gc.get_threshold()

    def parse() -> None:
        while not is_over.is_set():
            with contextlib.suppress(SystemError):  # also meets the fault
                ast.parse(SOURCE)

    thread = threading.Thread(target=parse)
    sys.setswitchinterval(1e-6)
    gc.set_threshold(50)
    thread.start()
    yield
    is_over.set()
    thread.join()
    sys.setswitchinterval(interval)
    gc.set_threshold(*threshold)


@pytest.mark.usefixtures("parsing")
def test_a_traceback_can_be_parsed_while_another_thread_parses() -> None:
    """pytest parses the files of a traceback; an error there would end the whole run."""
    for _ in range(5):
        [Slow() for _ in range(20)]
        with without_collector():
            ast.parse(SOURCE)
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    """The collection of the tests runs without it."""
    gc.disable()
    try:
        with without_collector():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()

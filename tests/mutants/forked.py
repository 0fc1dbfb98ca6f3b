"""A pytest plugin that judges many faults with one import of the tests: each in a fork of the collected run.

The document in ``FAULTS`` has the faults of one room. One fork runs all tests and records which functions of the
package each test calls. Then, for each fault, the plugin writes the faulty source and forks; the fork gives the
functions of the module the code of that source and runs the tests that call the function, shortest first, until
the first failure. Modules that a test imports later, and processes that it starts, read the source.
Each verdict is a line of ``VERDICTS``, after a line with the tests that fail without any fault.

A fork cannot judge a fault in a default or a decorator, nor one in a function that an import has already called:
their verdict is ``UNPLANTED`` unless a test fails. Calls in processes that a test starts are not seen.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, NoReturn

import pytest

FAULTS, VERDICTS = "faults.json", "verdicts.jsonl"
KILLED, SURVIVED, UNPLANTED = "killed", "SURVIVED", "unplanted"
PACKAGE = "faust_assigner"
#: Seconds for the run without a fault.
SURVEY_S = 1200.0
#: Seconds for the teardown of fixtures after a failure.
TEARDOWN_S = 10.0
#: inspect.CO_NEWLOCALS: the code of a function, not of a module or a class.
OF_A_FUNCTION = 0x2
#: The begin of a fork's answer, so that none is empty.
ANSWER = "="

_seen: set[CodeType] = set()
#: Fixture for several tests -> the functions that it calls.
_of_fixtures: dict[str, set[str]] = defaultdict(set)


def _trace(frame: FrameType, event: str, arg: object) -> None:
    _seen.add(frame.f_code)


def _set_trace(trace: Any) -> None:
    threading.settrace(trace)
    sys.settrace(trace)


def called(root: Path) -> set[str]:
    """Return FILE::FUNCTION of the package's functions called since the last time; a nested function is a part."""
    package = f"{root / PACKAGE}{os.sep}"
    found = {
        f"{Path(code.co_filename).relative_to(root).as_posix()}::{_outermost(code)}"
        for code in tuple(_seen)
        if code.co_filename.startswith(package)
    }
    _seen.clear()
    return found


def _outermost(code: CodeType) -> str:
    return code.co_qualname.partition(".<locals>")[0]


def replacements(old: CodeType, new: CodeType) -> dict[CodeType, CodeType] | None:
    """Map the code of each function that differs to its new code; None if other code differs."""
    found: dict[CodeType, CodeType] = {}
    inner = [[one for one in code.co_consts if isinstance(one, CodeType)] for code in (old, new)]
    names = [[one.co_qualname for one in codes] for codes in inner]
    if old.co_flags & OF_A_FUNCTION:
        if old.co_freevars != new.co_freevars:
            return None  # a closure that exists has the old cells
        if old != new:
            found[old] = new
    elif names[0] != names[1] or _outline(old) != _outline(new):
        return None
    for before, after in zip(*inner, strict=False):
        below = replacements(before, after) if before.co_qualname == after.co_qualname else {}
        if below is None:
            return None
        found |= below
    return found


def _outline(code: CodeType) -> tuple[object, ...]:
    """Return the code of a module or a class without the code of its functions."""
    constants = [repr(one) for one in code.co_consts if not isinstance(one, CodeType)]
    return code.co_code, code.co_names, constants


class Judge:
    """Runs instead of the tests of the session."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self._root = session.config.rootpath
        self._asked = json.loads((self._root / FAULTS).read_text(encoding="utf-8"))
        self._at_import = called(self._root)
        self._written = 2_000_000_000
        gc.unfreeze()
        package = f"{self._root / PACKAGE}{os.sep}"
        self._functions = [
            one
            for one in gc.get_objects()
            if isinstance(one, FunctionType) and one.__code__.co_filename.startswith(package)
        ]
        gc.freeze()  # a collection in a fork would copy the pages of all objects

    def judge_all(self) -> None:
        """Write the red tests, then a verdict (outcome, seconds, detail) for each fault."""
        self._survey()
        with (self._root / VERDICTS).open("w", encoding="utf-8") as out:
            print(json.dumps(self._red), file=out, flush=True)
            if len(self._red) == len(self._session.items):
                return
            for fault in self._asked["faults"]:
                began = time.monotonic()
                outcome, detail = self._judge(**fault)
                print(json.dumps([outcome, time.monotonic() - began, detail]), file=out, flush=True)

    def _survey(self) -> None:
        """Set the tests of each function, the seconds of each test, and the tests that fail."""
        file = self._root / "survey.json"

        def run() -> str:
            found = []
            for item, following in _pairs(self._session.items):
                began, before = time.monotonic(), self._session.testsfailed
                _set_trace(_trace)
                _run(item, following)
                _set_trace(None)
                functions = called(self._root)
                for fixture in getattr(item, "fixturenames", ()):
                    functions |= _of_fixtures[fixture]
                is_red = self._session.testsfailed != before
                found.append((is_red, time.monotonic() - began, sorted(functions)))
            file.write_text(json.dumps(found), encoding="utf-8")
            return ""

        if self._forked(run, SURVEY_S) != "":
            raise pytest.UsageError("The tests without a fault could not end")
        found = json.loads(file.read_text(encoding="utf-8"))
        self._red = [
            item.nodeid
            for item, (is_red, *_) in zip(self._session.items, found, strict=True)
            if is_red
        ]
        self._tests: dict[str, list[tuple[float, int]]] = defaultdict(list)
        for n, (is_red, seconds, functions) in enumerate(found):
            for function in () if is_red else functions:
                self._tests[function].append((seconds, n))

    def _judge(self, file: str, function: str, source: str) -> tuple[str, str]:
        """Return (outcome, the test that failed or the reason)."""
        name = f"{file}::{function}"
        path = self._root / file
        before = path.read_text(encoding="utf-8")
        old, new = (compile(one, path, "exec", dont_inherit=True) for one in (before, source))
        changed = replacements(old, new)
        tests = sorted(self._tests[name])
        survived = UNPLANTED if name in self._at_import else SURVIVED
        if changed is None or (not tests and survived == UNPLANTED):
            return UNPLANTED, ""
        if not tests:
            return SURVIVED, "no test calls the function"

        def run() -> str:
            planted = [
                one
                for one in self._functions
                if one.__code__.co_filename == str(path) and one.__code__ in changed
            ]
            for one in planted:
                one.__code__ = changed[one.__code__]
            if function not in {_outermost(one.__code__) for one in planted}:
                return UNPLANTED
            return self._first_failure(tests)

        limit_s = (
            self._asked["patience"] * sum(seconds for seconds, _ in tests) + self._asked["more_s"]
        )
        while True:
            self._write(path, source)
            try:
                failed = self._forked(run, limit_s)
            finally:
                self._write(path, before)
            if failed is None:
                return KILLED, f"the tests could not end within {limit_s:.0f} s"
            if failed in ("", UNPLANTED):
                return (survived if failed == "" else UNPLANTED), ""
            last = next(n for n, one in enumerate(tests) if self._nodeid(one) == failed)
            if self._forked(partial(self._first_failure, tests[: last + 1]), limit_s) != failed:
                return KILLED, failed
            del tests[last]  # in this order it fails without the fault, too

    def _nodeid(self, test: tuple[float, int]) -> str:
        return self._session.items[test[1]].nodeid

    def _first_failure(self, tests: list[tuple[float, int]]) -> str:
        for item, following in _pairs([self._session.items[n] for _, n in tests]):
            _run(item, following)
            if self._session.testsfailed:
                return item.nodeid
        return ""

    def _forked(self, act: Callable[[], str], limit_s: float) -> str | None:
        """Return what ``act`` returns in a fork; None after ``limit_s``, or if the fork dies."""
        reader, writer = os.pipe()
        if not (pid := os.fork()):
            self._answer(act, writer)
        os.close(writer)
        answer = b""
        try:
            if select.select([reader], [], [], limit_s)[0]:
                answer = os.read(reader, 65_536)
        finally:
            os.close(reader)
            _end(pid, TEARDOWN_S if answer else 0.0)
        return answer.decode().removeprefix(ANSWER) if answer else None

    def _answer(self, act: Callable[[], str], writer: int) -> NoReturn:
        """Answer with the result of ``act``, tear down the fixtures that a failure left, and end the process."""
        try:
            os.setsid()
            nowhere = os.open(os.devnull, os.O_RDWR)
            for standard in (0, 1, 2):
                os.dup2(nowhere, standard)
            try:
                answer = act()
            except BaseException:  # of pytest or of the replaced code, not of a test
                answer = UNPLANTED
            os.write(writer, f"{ANSWER}{answer}".encode())
            self._session._setupstate.teardown_exact(None)
        finally:
            os._exit(0)

    def _write(self, path: Path, source: str) -> None:
        """With a time of its own for each content: bytecode, which is kept, is known by it."""
        path.write_text(source, encoding="utf-8")
        self._written += 10
        os.utime(path, (self._written, self._written))


def _pairs(items: list[pytest.Item]) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
    return zip(items, [*items[1:], None], strict=True)


def _run(item: pytest.Item, following: pytest.Item | None) -> None:
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)


def _end(pid: int, within_s: float) -> None:
    """Give a fork this time to end, and kill its process group."""
    end = time.monotonic() + within_s
    look = os.WEXITED | os.WNOWAIT | os.WNOHANG  # the group keeps its id until the fork is reaped
    while os.waitid(os.P_PID, pid, look) is None and time.monotonic() < end:
        time.sleep(0.002)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)  # it may not lead its group yet
    os.waitpid(pid, 0)


def pytest_addoption() -> None:
    """Trace the imports, in all threads, before other plugins import the package."""
    _set_trace(_trace)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: Any) -> Iterator[None]:
    """Take what a fixture for several tests calls: it belongs to each of them."""
    if fixturedef.scope == "function":
        return (yield)
    outside = set(_seen)
    _seen.clear()
    try:
        return (yield)
    finally:
        _of_fixtures[fixturedef.argname] |= called(request.config.rootpath)
        _seen.update(outside)


def pytest_collection_finish() -> None:
    """End the trace of the imports."""
    _set_trace(None)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Judge the faults; after an error of the collection pytest says so itself."""
    if session.testsfailed:
        return None
    Judge(session).judge_all()
    return True

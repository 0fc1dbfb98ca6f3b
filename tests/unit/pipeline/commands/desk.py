"""Runs commands of the pipeline in a folder with a clock that stands still, and notes all they do."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import itertools
import json
import logging
import os
import re
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from html import unescape
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from faust_assigner import __version__
from faust_assigner.cli import history, main, weights
from faust_assigner.pipeline.history import output
from faust_assigner.pipeline.simulate import request
from faust_assigner.snapshots.sst import read_items

NOW = dt.datetime(2026, 11, 24, 6, 30, tzinfo=dt.UTC)


class StillDatetime(dt.datetime):
    """A datetime whose now is given."""

    instant: dt.datetime = NOW

    @classmethod
    def now(cls, tz: Any = None) -> StillDatetime:
        """Return the given time."""
        at = cls.instant.astimezone(tz)
        return cls.fromtimestamp(at.timestamp(), tz)


class Desk(logging.Handler):
    """A folder, a clock, and the lines of the commands that were run."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        super().__init__(logging.INFO)
        self.folder = folder
        self.patch = patch
        self.lines: list[str] = []
        self._known: dict[str, bytes] = {}
        self._hashes: dict[str, str] = {}

    @property
    def now(self) -> dt.datetime:
        """The time of the commands."""
        return StillDatetime.instant

    def later(self, **time: float) -> None:
        """Set the clock forward."""
        StillDatetime.instant += dt.timedelta(**time)
        self.lines.append(f"== {self.now:%Y-%m-%d %H:%M:%S}")

    def emit(self, record: logging.LogRecord) -> None:
        """Note a line of the log."""
        self.note(f"log {record.levelname} {record.getMessage()}")

    def note(self, line: str) -> None:
        """Add a line, without what differs between runs."""
        self.lines.append(f"  {self._plain(line)}".rstrip())

    def _plain(self, line: str) -> str:
        line = line.replace(str(self.folder), "HERE").replace(__version__, "VERSION")
        line = re.sub(r"(inode\W+)\d+", r"\1N", line)
        for found in re.findall(r"\b[0-9a-f]{64}\b", line):
            self._hashes.setdefault(found, f"sha-{len(self._hashes) + 1}")
            line = line.replace(found, self._hashes[found])
        return line

    def run(self, *arguments: str, shows: Sequence[str] = ("",)) -> str:
        """Run a command; note its output and the changed files under the ``shows``; return stdout."""
        self.lines.append(f"$ {' '.join(arguments)}")
        runner = CliRunner(env={"COLUMNS": "110"})
        with _working_in(self.folder):
            done = runner.invoke(main, arguments, prog_name="faust-assigner", terminal_width=110)
        for name, text in (("out", done.stdout), ("err", done.stderr)):
            for line in text.splitlines():
                self.note(f"{name}| {line}")
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            self.note(f"raises {done.exception!r}")
        self.note(f"exit {done.exit_code}")
        self.files(shows)
        return done.stdout

    def files(self, shows: Sequence[str] = ("",)) -> None:
        """Note new, changed and removed files; set their times to now."""
        found = {
            str(path.relative_to(self.folder)): path.read_bytes()
            for path in sorted(self.folder.rglob("*"))
            if path.is_file()
        }
        for name in sorted(self._known.keys() - found.keys()):
            self.note(f"removed {name}")
        for name, data in found.items():
            if self._known.get(name) == data:
                continue
            os.utime(self.folder / name, (self.now.timestamp(),) * 2)
            self.note(f"{'changed' if name in self._known else 'new'} {name}")
            if any(name.startswith(shown) for shown in shows):
                for line in _contents(self.folder / name, data):
                    self.note(f"    {line}")
        self._known = found


def _contents(path: Path, data: bytes) -> Iterator[str]:
    """Yield a file's contents as lines of text."""
    if path.suffix == ".json":
        yield from _document(json.loads(data))
    elif path.suffix == ".parquet":
        for row in pq.ParquetFile(path).read().to_pylist():
            yield " ".join(f"{name}={_value(said)}" for name, said in row.items())
    elif path.suffix == ".sst":
        yield from (f"{key!r} = {value!r}" for key, value in read_items([path]))
    elif path.suffix == ".html":
        yield from _words(data.decode())
    elif path.suffix not in (".jsonl", ".gz"):
        yield from data.decode(errors="replace").splitlines()


def _value(said: Any) -> str:
    return said.isoformat() if hasattr(said, "isoformat") else str(said)


def _document(said: Any, name: str = "") -> Iterator[str]:
    """Yield a JSON document: a line for each row of a list, and for each value of an object."""
    if isinstance(said, dict) and said:
        for key, value in said.items():
            yield from _document(value, f"{name}.{key}" if name else key)
    elif isinstance(said, list) and said and isinstance(said[0], dict):
        for number, value in enumerate(said):
            yield f"{name}[{number}] {json.dumps(value)}"
    else:
        yield f"{name}: {json.dumps(said)}"


def _words(html: str) -> Iterator[str]:
    """Yield the texts of a page, without styles and scripts."""
    text = re.sub(r"(?s)<(style|script)\b.*?</\1>", "", html)
    for part in re.split(r"<[^>]+>", text):
        if words := " ".join(unescape(part).split()):
            yield words


@contextlib.contextmanager
def _working_in(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@contextlib.contextmanager
def desk() -> Iterator[Desk]:
    """Provide a desk with a new folder; the clock stands still, ids count from 1, no plot is drawn."""
    numbers = itertools.count(1)
    StillDatetime.instant = NOW
    logger = logging.getLogger("faust_assigner")
    level, propagated = logger.level, logger.propagate
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        made = Desk(Path(folder).resolve(), patch)
        for module in (history, weights, output, request):
            patch.setattr(module, "datetime", StillDatetime)
        patch.setattr(time, "time", lambda: StillDatetime.instant.timestamp())
        patch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=next(numbers) << 80))
        patch.setattr("faust_assigner.pipeline.history.plots.draw", lambda report: {})
        logger.addHandler(made)
        logger.setLevel(logging.INFO)
        logger.propagate = False
        try:
            yield made
        finally:
            logger.removeHandler(made)
            logger.setLevel(level)
            logger.propagate = propagated


def run_now(_: object, work: Any) -> Any:
    """Run a coroutine in place of a request to Kafka."""
    return asyncio.run(work)

"""Options of a look at a group, and ``faust-assigner status`` once, in a pipe, or on a terminal."""

from __future__ import annotations

import asyncio
import gc
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner

from faust_assigner.cli import looking, status
from faust_assigner.errors import TryAgain
from faust_assigner.status.collect import Where
from tests.unit.cli.looks import BROKER, REACH, WHERE, Looks, run

pytestmark = pytest.mark.usefixtures("home")


# -- the options of a look


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ([], {}),
        (["--worker", "http://b", "--worker", "http://a"], {"workers": ("http://b", "http://a")}),
        (["--web-port", "80"], {"web_port": 80}),
        (["--deadline", "1.5"], {"deadline_s": 1.5}),
        (["--config", "client.properties"], {"connection": {**BROKER, "request_timeout_ms": 700}}),
    ],
)
def test_each_option_of_a_look_reaches_it_alone(
    options: list[str], changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment's allowed addresses are added."""
    seen: list[Where] = []

    @click.command()
    @looking.look_options
    def probe(**reach: Any) -> None:
        seen.append(looking.where_of(**reach))

    done = CliRunner().invoke(probe, [*REACH, *options], catch_exceptions=False)
    assert (done.exit_code, seen) == (0, [replace(WHERE, **changes)])
    monkeypatch.setenv("FAUST_ASSIGNER_URLS", "*.shop")
    CliRunner().invoke(probe, [*REACH, *options], catch_exceptions=False)
    assert seen[1].patterns == ("*.shop",)


@pytest.mark.parametrize(
    ("saved", "group", "reach", "is_wrong"),
    [
        (None, None, (), True),
        (None, "", ("b",), True),
        (None, "g", (), False),
        (None, "g", ("b", None, ("w",)), False),
        (Path("f"), None, (None, None, ()), False),
        (Path("f"), "g", (), True),
        (Path("f"), None, ("b", None, ()), True),
        (Path("f"), None, (None, "c", ()), True),
        (Path("f"), None, (None, None, ("w",)), True),
    ],
)
def test_a_group_or_a_file_is_shown_and_not_both(
    saved: Path | None, group: str | None, reach: tuple[Any, ...], is_wrong: bool
) -> None:
    """A file needs no connection, so the connection's options are refused."""
    if is_wrong:
        with pytest.raises(click.UsageError):
            looking.check_source(saved, group, *reach)
    else:
        looking.check_source(saved, group, *reach)


# -- status


class Stop(Exception):
    """Ends an endless loop."""


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace reports by their evidence, and texts by their options."""
    monkeypatch.setattr("faust_assigner.status.build.build", lambda evidence: evidence)
    monkeypatch.setattr(
        "faust_assigner.status.render.render", lambda report, **options: f"{report} {options}"
    )
    monkeypatch.setattr("faust_assigner.wire.documents.dumps", lambda report: f"json {report}")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ([], "one {'with_partitions': False}\n"),
        (["--partitions"], "one {'with_partitions': True}\n"),
        (["--json"], "json one\n"),
    ],
)
def test_a_look_is_shown_once_and_the_connection_closed(
    looks: type[Looks], built: None, options: list[str], text: str
) -> None:
    """The look uses the wall clock, and the cyclic garbage collector runs rarely."""
    before = gc.get_threshold()
    try:
        gc.set_threshold(700)
        looks.answers.append("one")
        assert run("status", *REACH, *options).stdout == text
        assert gc.get_threshold()[0] == 100_000
    finally:
        gc.set_threshold(*before)
    assert (looks.made, looks.asked) == ([(WHERE, time.time)], ["closed"])


@pytest.mark.parametrize(("as_json", "on_terminal"), [(False, False), (True, False), (True, True)])
def test_a_watch_as_lines_goes_on_after_a_look_without_an_answer(
    looks: type[Looks],
    built: None,
    slept: list[float],
    as_json: bool,
    on_terminal: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """JSON on a terminal works alike. The reason is on stderr; a bug ends the watch."""
    monkeypatch.setattr("rich.console.Console.is_terminal", on_terminal)
    looks.answers += ["one", TryAgain("silent"), "two", ZeroDivisionError()]
    with pytest.raises(ZeroDivisionError):
        asyncio.run(status._watch_group(WHERE, 7.0, True, as_json))
    told = capsys.readouterr()
    ends = ["json one", "json two"] if as_json else ["one", "two"]
    shown = told.out.splitlines()
    assert [line.startswith(end) for line, end in zip(shown, ends, strict=True)] == [True, True]
    assert as_json or all("'with_partitions': True" in line for line in shown)
    assert told.err == "faust-assigner: silent\n"
    assert (slept, looks.asked) == ([7.0, 7.0, 7.0], ["closed"])


class Live:
    """A fake terminal that keeps the drawn texts."""

    drawn: list[Any]

    def __init__(self, **options: Any) -> None:
        self.drawn.append(options)

    def __enter__(self) -> Live:
        return self

    def __exit__(self, *_: object) -> None:
        self.drawn.append("left")

    def update(self, text: Any) -> None:
        """Keep the text."""
        self.drawn.append(str(text))

    def refresh(self) -> None:
        """Note the refresh."""
        self.drawn.append("refreshed")


@pytest.mark.parametrize(("height", "rows"), [(40, 14), (12, 3), (19, 3), (20, 4)])
def test_a_watch_on_a_terminal_draws_every_look_or_the_reason_against_it(
    looks: type[Looks], built: None, monkeypatch: pytest.MonkeyPatch, height: int, rows: int
) -> None:
    """The screen's height limits the rows of each table, to at least three."""
    monkeypatch.setattr(Live, "drawn", [], raising=False)
    monkeypatch.setattr("rich.live.Live", Live)

    async def sleep(seconds: float) -> None:
        Live.drawn.append(seconds)

    monkeypatch.setattr(status, "asyncio", SimpleNamespace(sleep=sleep))
    screen: Any = SimpleNamespace(is_terminal=True, height=height)
    monkeypatch.setattr(status, "console", lambda: screen)
    looks.answers += ["one", TryAgain("silent"), Stop()]
    with pytest.raises(Stop):
        asyncio.run(status._watch_group(WHERE, 7.0, True, False))
    assert Live.drawn == [
        {"console": screen, "screen": True, "auto_refresh": False},
        f"one {{'with_partitions': True, 'rows': {rows}}}",
        "refreshed",
        7.0,
        "silent; next look in 7 s",
        "refreshed",
        7.0,
        "left",
    ]

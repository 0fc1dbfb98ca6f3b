"""``faust-assigner doctor`` and ``spark doctor``: their texts, and cases at the edges of their options."""

from __future__ import annotations

import io
import json
import os
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from faust_assigner.cli import main, screen
from faust_assigner.doctor import app_facts, group_checks
from faust_assigner.doctor.codes import BY_CODE, finding
from faust_assigner.pipeline import doctor as spark_doctor
from faust_assigner.pipeline.doctor import Finding
from tests.unit.cli import test_doctor
from tests.unit.cli.test_doctor import BROKER, FACTS, TABLE, codes, run

#: The fixture that records the checks.
asked = test_doctor.asked


def said(*arguments: str, code: int) -> str:
    """Return the doctor's text; check the exit code."""
    done = CliRunner().invoke(main, ["doctor", *arguments])
    assert done.exit_code == code, done.output
    return done.output


@pytest.mark.parametrize("spelling", ["FA003", "fa003"])
def test_a_code_is_explained_with_its_reason_and_its_fix(spelling: str) -> None:
    """No check is made, and no app is needed."""
    entry = BY_CODE["FA003"]
    assert entry.why != entry.fix
    words = f"FA003 ({entry.level}): {entry.title} {entry.why} Fix: {entry.fix}"
    assert " ".join(said("--explain", spelling, code=0).split()) == " ".join(words.split())


@pytest.mark.parametrize("code", ["FA00", "FA0000", "F", "FA999", "A001"])
@pytest.mark.parametrize("option", ["--explain", "--ignore"])
def test_only_a_whole_code_is_a_code(asked: list[Any], option: str, code: str) -> None:
    """The error lists the codes, and each of several ignored codes is checked."""
    text = said("-A", "shop.app", option, code.lower(), code=2)
    assert f"unknown code {code}; the codes are {', '.join(BY_CODE)}"[:60] in text
    assert "unknown code" in said("-A", "a", "--ignore", "FA001", "--ignore", code, code=2)
    assert asked == []


def test_brokers_without_an_app_or_a_group_name_nothing_to_check(asked: list[Any]) -> None:
    """The brokers' other groups may not be Faust apps."""
    assert "give -A APP, or --bootstrap" in said("--bootstrap", "a:1", code=2)
    assert "give -A APP, or --bootstrap" in said(code=2)
    assert asked == []


def test_a_group_without_brokers_is_not_left_out(asked: list[Any]) -> None:
    """The app is known, but the named group could not be checked."""
    text = said("-A", "shop.app", "--group", "g", code=2)
    assert text.startswith("faust-assigner: ")
    assert "bootstrap" in text
    assert asked == []


def test_the_changelogs_of_all_tables_are_topics_of_the_app(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection has the properties of --config."""
    other: Any = SimpleNamespace(changelog="shop-rates-changelog")
    monkeypatch.setattr(app_facts, "load", lambda name: replace(FACTS, tables=(TABLE, other)))
    found = run("-A", "shop.app", "--bootstrap", "a:1", code=1)
    names = {"orders", "rates", "shop-totals-changelog", "shop-rates-changelog"}
    assert asked[0] == ("topics", BROKER, names)
    assert found["unchecked"] == [
        *(f"Topic {name} does not exist yet" for name in sorted(names - {"orders"})),
        "w1 was not checked",
    ]


def test_no_grace_at_all_is_judged_too(asked: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor may kill at once, which is not an unknown grace."""
    grace = finding("FA007", "short", level="warning")
    monkeypatch.setattr(group_checks, "check_group_grace", lambda facts, s: (grace,) * (s == 0))
    group = ("--bootstrap", "a:1", "--group", "shop")
    assert codes(run(*group, "--grace", "0", code=1)) == ["FA007", "FA002"]


def test_the_lines_of_findings_have_110_columns_in_a_pipe(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wider line would be broken by most pagers."""
    monkeypatch.delenv("COLUMNS", raising=False)
    text = " ".join(f"word{number}" for number in range(10, 99))
    monkeypatch.setattr(
        "faust_assigner.doctor.app_checks.check_app",
        lambda *_: (finding("FA001", text, level="warning"),),
    )
    lines = said("-A", "shop.app", code=1).splitlines()
    assert 100 < max(map(len, lines)) <= 110


# -- spark doctor


@pytest.mark.parametrize(("is_fit", "code"), [(True, 0), (False, 1)])
@pytest.mark.parametrize("start", [True, False])
def test_the_findings_about_spark_are_shown_with_their_fixes(
    monkeypatch: pytest.MonkeyPatch, *, is_fit: bool, code: int, start: bool
) -> None:
    """The exit code is that of the verdict; a session is started only on request."""
    found = [Finding("java", "good", "Java 17"), Finding("pyspark", "bad", "none", "pip install")]
    told: list[Any] = []
    monkeypatch.setattr(spark_doctor, "examine", lambda **more: told.append(more) or found)
    monkeypatch.setattr(spark_doctor, "is_fit", lambda given: told.append(given) or is_fit)
    options = ["spark", "doctor", *["--start"] * start]
    done = CliRunner().invoke(main, options)
    assert done.exit_code == code
    for word in ("java", "Java 17", "pyspark", "bad", "none", "pip install"):
        assert word in done.stdout
    done = CliRunner().invoke(main, [*options, "--json"])
    assert done.exit_code == code
    assert json.loads(done.stdout) == [vars(one) for one in found]
    assert len(done.stdout.splitlines()) == 14
    assert told == [{"start": start}, found] * 2


# -- the console


class Screen(io.StringIO):
    """A standard output that may be a terminal."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        """Return whether it is a terminal."""
        return self.is_terminal


@pytest.mark.parametrize(
    ("is_terminal", "environment", "width"),
    [
        (False, {}, 130),
        (False, {"COLUMNS": "77"}, 77),
        (False, {"LINES": "20"}, 130),
        (True, {"COLUMNS": "77"}, 77),
        (True, {}, 80),
    ],
)
def test_a_pipe_has_the_commands_width_unless_columns_is_set(
    monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool, environment: dict[str, str], width: int
) -> None:
    """On a terminal rich uses the terminal's width, 80 if unknown."""
    for name in ("COLUMNS", "LINES", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    def unknown(*_: object) -> Any:
        raise OSError("no terminal")

    monkeypatch.setattr(os, "get_terminal_size", unknown)
    out = Screen(is_terminal=is_terminal)
    monkeypatch.setattr(screen.click, "get_text_stream", lambda name: {"stdout": out}[name])
    assert screen.console(130).width == width
    monkeypatch.setattr(out, "is_terminal", False)
    assert screen.console().width == (200 if "COLUMNS" not in environment else 77)


def test_names_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """A member's name may look like rich's markup, like an emoji or like a number."""
    text = "[bold]w1[/bold] :smile: [/] 7 'x' http://w1:6066"
    found = screen.console()
    found.print(text)
    assert capsys.readouterr().out == f"{text}\n"
    assert [one.text for one in found.render(text) if one.style] == []

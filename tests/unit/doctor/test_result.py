"""The doctor's result: order, exit codes, JSON, text; and the page of all codes."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from faust_assigner.cli import main
from faust_assigner.doctor.codes import BY_CODE, CODES, ERROR, LEVELS, NOTE, WARNING, finding
from faust_assigner.doctor.render import render
from faust_assigner.doctor.result import result

PAGE = Path(__file__).resolve().parents[3] / "docs/reference/doctor.md"
FOUND = (
    finding("FA017", "off"),
    finding("FA005", "tables totals", subject="shop"),
    finding("FA008", "cleanup.policy is delete", subject="shop-totals-changelog"),
    finding("FA005", "tables totals", subject="shop"),
)


def test_the_worst_comes_first_and_nothing_twice() -> None:
    """The order is errors, warnings, notes."""
    found = result(["app shop"], FOUND, [])
    assert [one.code for one in found.findings] == ["FA008", "FA005", "FA017"]


@pytest.mark.parametrize(
    ("level", "fail_on", "code"),
    [
        (ERROR, ERROR, 1),
        (WARNING, ERROR, 0),
        (NOTE, ERROR, 0),
        (ERROR, WARNING, 1),
        (WARNING, WARNING, 1),
        (NOTE, WARNING, 0),
        (NOTE, NOTE, 1),
    ],
)
def test_the_exit_code_is_1_from_a_level_on(level: str, fail_on: str, code: int) -> None:
    """By default a note does not fail the command."""
    found = result(["x"], [finding("FA007", "x", level=level)], [])
    assert found.exit_code(fail_on=fail_on) == code
    assert result(["x"], [], []).exit_code(fail_on=fail_on) == 0


def test_a_code_can_be_ignored() -> None:
    """Only the ignored code is removed."""
    found = result(["x"], FOUND, []).without(["FA008"])
    assert [one.code for one in found.findings] == ["FA005", "FA017"]


def test_json_has_reason_and_fix_of_each_finding() -> None:
    """The JSON also has the counts of errors and warnings."""
    found = json.loads(json.dumps(result(["app shop"], FOUND, ["w1 was not checked"]).as_json()))
    assert found["findings"][0] == {
        "code": "FA008",
        "level": "error",
        "title": BY_CODE["FA008"].title,
        "subject": "shop-totals-changelog",
        "text": "cleanup.policy is delete",
        "why": BY_CODE["FA008"].why,
        "fix": BY_CODE["FA008"].fix,
    }
    assert (found["errors"], found["warnings"], found["unchecked"]) == (
        1,
        1,
        ["w1 was not checked"],
    )


def test_text_has_each_code_once_with_its_fix() -> None:
    """Many members share a code's entry; the text ends with a summary."""
    console = Console(file=io.StringIO(), width=100, highlight=False, emoji=False)
    many = [finding("FA001", "this member is stock Faust", subject=f"w{n}") for n in range(14)]
    console.print(render(result(["group shop (14 members)"], [*many, *FOUND], ["a sentence"])))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert text.count("FA001 error: The assignor is not used") == 1
    assert text.count("this member is stock Faust") == 10
    assert "and 4 more (--json has all)" in text
    assert text.count("fix: ") == 4
    assert "not checked: a sentence" in text
    assert "group shop (14 members): 15 errors, 1 warning, 1 note." in text


@pytest.mark.parametrize("code", [code.code for code in CODES])
def test_each_code_has_an_entry_with_a_reason_and_a_fix(code: str) -> None:
    """The entry is on the page and in the output of ``--explain``."""
    entry = BY_CODE[code]
    assert entry.level in LEVELS
    assert f"## {code}\n" in PAGE.read_text()
    shown = CliRunner().invoke(main, ["doctor", "--explain", code.lower()])
    assert shown.exit_code == 0
    words = " ".join(shown.output.split())
    assert " ".join(entry.why.split()) in words
    assert " ".join(entry.fix.split()) in words


def test_codes_are_numbered_without_a_hole() -> None:
    """A removed code keeps its number."""
    assert [code.code for code in CODES] == [f"FA{n:03}" for n in range(1, len(CODES) + 1)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give -A APP"),
        (("--explain", "FA999"), "unknown code FA999"),
        (("--ignore", "FA001", "--explain", "FA999"), "unknown code FA999"),
        (("--ignore", "FA001", "--ignore", "FA998"), "unknown code FA998"),
        (("-A", "nothing_of_that_name.app"), "ModuleNotFoundError"),
        (
            ("--group", "shop"),
            "no brokers are given: use --bootstrap, bootstrap.servers in --config, or "
            "FAUST_ASSIGNER_KAFKA_BOOTSTRAP_SERVERS in the environment",
        ),
        (("--group", "shop", "--bootstrap", "127.0.0.1:1"), "no broker answers"),
    ],
)
def test_where_nothing_could_be_looked_at_the_exit_code_is_2(
    arguments: tuple[str, ...], said: str
) -> None:
    """A pipeline can tell a failed check from findings."""
    done = CliRunner().invoke(main, ["doctor", *arguments])
    assert done.exit_code == 2, done.output
    assert said in done.output


def test_each_level_has_its_colour() -> None:
    """An operator reads red as an error."""
    for level, style in ((ERROR, "bold red"), (WARNING, "bold yellow"), (NOTE, "bold cyan")):
        made = result(["the app"], [finding("FA007", "text", level=level)], [])
        head, *_ = render(made).renderables  # type: ignore[attr-defined]
        assert [(span.start, span.style) for span in head.spans] == [(0, style)]

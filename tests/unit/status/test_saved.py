"""Saved looks: read back unchanged; foreign content is refused with its line number."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from faust_assigner.cli import main
from faust_assigner.errors import ConfigError
from faust_assigner.status.build import build
from faust_assigner.status.render import render
from faust_assigner.status.report import Report
from faust_assigner.status.saved import read_saved
from faust_assigner.wire.documents import dumps
from faust_assigner.wire.worker_status import Rounds, RoundTold, encode_document
from tests.support.page import busy, fleet
from tests.support.status import AT
from tests.unit.status.test_schema import busy as with_all


def report_at(seconds: float) -> Report:
    """A look at a group of three."""
    return replace(build(busy(fleet(3))), taken_at=AT + seconds)


def saved(folder: Path, *lines: str) -> Path:
    """Write a file with these lines."""
    file = folder / "looks.jsonl"
    file.write_text("".join(f"{line}\n" for line in lines))
    return file


def test_a_report_with_something_in_every_part_is_read_as_it_was(tmp_path: Path) -> None:
    """The report has every key and every kind of value."""
    report = build(with_all())
    assert read_saved(saved(tmp_path, dumps(report))).looks == (report,)


def test_looks_are_by_time_and_rounds_stand_between_them(tmp_path: Path) -> None:
    """A file may be a concatenation of several; empty lines are ignored."""
    told = RoundTold(generation=4, at=AT)
    rounds = encode_document(Rounds(app="shop", rounds=(told,))).decode()
    first, last = report_at(0), report_at(9)
    found = read_saved(saved(tmp_path, dumps(last), rounds, "", dumps(first)))
    assert (found.looks, found.last, found.rounds) == ((first, last), last, (told,))


def test_a_key_of_a_later_version_is_passed_over(tmp_path: Path) -> None:
    """Versions only add keys."""
    line = dumps(report_at(0)).replace('{"group"', '{"new":[1],"group"', 1)
    assert read_saved(saved(tmp_path, line)).last == report_at(0)


def test_a_last_line_that_was_cut_off_is_passed_over(tmp_path: Path) -> None:
    """Ctrl-C cuts a line short. If the only line is cut, no look is left to show."""
    file, line = saved(tmp_path, dumps(report_at(0))), dumps(report_at(2))
    whole = file.read_text()
    file.write_text(whole + line[: len(line) // 2])
    assert read_saved(file).last == report_at(0)
    file.write_text(whole[: len(whole) // 2])
    with pytest.raises(ConfigError, match="line 1: not an output of faust-assigner status --json"):
        read_saved(file)


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ((), "contains no status of a group"),
        (('{"group": "shop"}',), r"line 1: .* \(document without "),
        (("{", "}"), r"line 1: .* \(not JSON"),
        (("[1]",), r"line 1: .* \(the JSON is a list, not an object"),
        ((dumps(report_at(0)), '{"app": "other"}'), "the status of several groups: other, shop"),
    ],
)
def test_what_is_something_else_is_refused_with_its_line(
    tmp_path: Path, lines: tuple[str, ...], reason: str
) -> None:
    """A cut line that is followed by further lines is refused too."""
    with pytest.raises(ConfigError, match=reason):
        read_saved(saved(tmp_path, *lines))


def command(*arguments: str | Path) -> Result:
    """Run ``faust-assigner status`` in this process."""
    return CliRunner(env={"COLUMNS": "200"}).invoke(main, ["status", *map(str, arguments)])


def test_the_command_shows_the_newest_look_and_when_it_was(tmp_path: Path) -> None:
    """The text is that of a live look; ``--json`` returns the saved object."""
    file = saved(tmp_path, dumps(report_at(9)), dumps(report_at(0)))
    first, rest = command("--from", file).stdout.split("\n", 1)
    assert first == f"saved at 2026-11-21 03:40:31 UTC in {file}; this is not the current state"
    screen = Console(file=io.StringIO(), width=200, highlight=False, emoji=False)
    screen.print(render(report_at(9)))
    assert isinstance(screen.file, io.StringIO)
    assert rest == screen.file.getvalue()
    assert command("--from", file, "--json").stdout == dumps(report_at(9)) + "\n"


def test_the_command_takes_a_group_or_a_file(tmp_path: Path) -> None:
    """A group and a file exclude each other, one is required, and a file cannot be watched."""
    file = saved(tmp_path, dumps(report_at(0)))
    for arguments, reason in (
        ((), "give --bootstrap HOST:PORT --group APP, or --from FILE"),
        (("--from", file, "--group", "shop"), "--from FILE shows a saved status"),
        (("--from", file, "--bootstrap", "b:9092"), "--from FILE shows a saved status"),
        (("--from", file, "--watch"), "remove --watch"),
    ):
        done = command(*arguments)
        assert (done.exit_code, reason in done.output) == (2, True), done.output


def test_a_file_that_is_no_look_is_one_line() -> None:
    """The error has no traceback."""
    done = command("--from", __file__)
    assert done.exit_code == 2
    assert done.output.startswith("faust-assigner: ")
    assert done.output.count("\n") == 1

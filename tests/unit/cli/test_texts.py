"""Text arguments of commands: lists, ranges, times, pairs and finite numbers."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any, cast

import click
import pytest
from click.testing import CliRunner

import faust_assigner.cli.status as status_module
from faust_assigner.cli.failure import quiet_kafka, reported_errors
from faust_assigner.cli.options import Number
from faust_assigner.cli.scaler import _parse_pairs
from faust_assigner.cli.simulate import _parse_names, _parse_numbers, _parse_range
from faust_assigner.cli.why import _parse_time
from faust_assigner.errors import ConfigError
from tests.support.status import group

NOW = datetime(2026, 11, 23, 2, 0, 30, 5, tzinfo=UTC)


def at(text: str) -> str:
    """Return the moment in UTC."""
    return datetime.fromtimestamp(_parse_time(text, NOW), UTC).isoformat()


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("02:00", "2026-11-23T02:00:00+00:00"),
        ("02:00:30", "2026-11-23T02:00:30+00:00"),
        ("02:00:31", "2026-11-22T02:00:31+00:00"),
        ("02:01", "2026-11-22T02:01:00+00:00"),
        ("2026-11-24", "2026-11-24T00:00:00+00:00"),
        ("2026-11-24T01:00-01:00", "2026-11-24T02:00:00+00:00"),
    ],
)
def test_a_time_of_day_is_the_last_such_time_up_to_now(text: str, moment: str) -> None:
    """A date may lie in the future."""
    assert at(text) == moment


def test_now_is_the_last_such_time() -> None:
    """The time is not moved to the day before."""
    now = NOW.replace(second=0, microsecond=0)
    assert _parse_time("02:00", now) == now.timestamp()


@pytest.mark.parametrize("text", ["", "noon", "25:00", "02", "2026-13-01"])
def test_another_text_is_no_time(text: str) -> None:
    """The error shows the text."""
    with pytest.raises(click.BadParameter, match="is not a time like"):
        _parse_time(text, NOW)


def test_numbers_are_listed_once_each_from_the_least_on() -> None:
    """Numbers keep their order; a number below the lowest is refused."""
    assert _parse_numbers("2,0,2,1", "--replicas") == (2, 0, 1)
    assert _parse_numbers("1,3", "--racks", 1) == (1, 3)
    for text, lowest in (
        ("0,1", 1),
        ("1,0", 1),
        ("", 0),
        ("1,", 0),
        ("-1", 0),
        ("1 2", 0),
        ("1" * 7, 0),
    ):
        with pytest.raises(click.BadParameter, match=f"numbers from {lowest} on"):
            _parse_numbers(text, "--replicas", lowest)


def test_a_range_may_be_one_number_and_must_not_fall() -> None:
    """A single number is both ends; a number below the lowest is refused."""
    assert [_parse_range(text, "--members", 2) for text in ("3:8", "5", "2:2")] == [
        (3, 8),
        (5, 5),
        (2, 2),
    ]
    for text in ("1:3", "1", "8:3", "3:", ":3", "3:8:9", "a"):
        with pytest.raises(click.BadParameter, match="from:to, from 2 on"):
            _parse_range(text, "--members", 2)


def test_names_and_pairs_lose_their_blanks() -> None:
    """The value of a pair may contain an equals sign; of two values of a key the last counts."""
    assert _parse_pairs(("a=1", "b=3", "a = 2")) == {"a": " 2", "b": "3"}
    assert _parse_names(" ours, ,stock+static ") == ("ours", "stock+static")
    assert _parse_pairs((" min =2", "x=a=b")) == {"min": "2", "x": "a=b"}
    with pytest.raises(click.UsageError, match="--set min: must be KEY=VALUE"):
        _parse_pairs(("min",))


@click.command()
@click.option("--x", type=Number(min=1))
def probe(x: float) -> None:
    """A command with a number option."""
    click.echo(x)


@pytest.mark.parametrize(
    ("text", "code"), [("1", 0), ("0.9", 2), ("nan", 2), ("inf", 2), ("x", 2), ("1e3", 0)]
)
def test_a_number_is_finite_and_in_its_range(text: str, code: int) -> None:
    """The range may have any bounds."""
    assert CliRunner().invoke(probe, ["--x", text]).exit_code == code


@pytest.mark.parametrize("level", [logging.WARNING, logging.NOTSET])
def test_kafkas_log_is_quiet_during_a_command_only(level: int) -> None:
    """An error also restores the previous level; a logger without a level gets none."""
    logger = logging.getLogger("aiokafka")
    before = logger.level
    logger.setLevel(level)

    def failing() -> None:
        with quiet_kafka():
            assert logger.level == logging.CRITICAL
            raise ValueError("x")

    try:
        with pytest.raises(ValueError, match="x"):
            failing()
        assert logger.level == level
    finally:
        logger.setLevel(before)


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (ConfigError("wrong"), 2, "faust-assigner: wrong"),
        (ConfigError("names \x1b[2J\nand more"), 2, "faust-assigner: names ?[2J\nand more\n"),
        (click.UsageError("odd"), 2, "odd"),
        (click.exceptions.Exit(5), 5, ""),
    ],
)
def test_an_error_of_ours_is_a_line_and_an_exit_code(
    error: Exception, code: int, words: str
) -> None:
    """click's own errors stay unchanged; a bug keeps its traceback."""

    @click.command()
    def failing() -> None:
        with reported_errors():
            raise error

    done = CliRunner().invoke(failing, [])
    assert done.exit_code == code
    assert words in done.output

    @click.command()
    def broken(**_: Any) -> None:
        with reported_errors():
            raise ZeroDivisionError

    assert isinstance(CliRunner().invoke(broken, []).exception, ZeroDivisionError)


def test_a_closed_output_is_no_error_of_the_command() -> None:
    """The pipe closes with ``| head``, and click ends the command silently."""
    with pytest.raises(BrokenPipeError), reported_errors():
        raise BrokenPipeError


async def test_a_repeated_status_ends_with_its_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed look is reported and repeated; a closed output ends the command."""
    made = group(2)

    class OneLook:
        async def look(self) -> Any:
            return made.evidence()

    def closed(*_: Any) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(status_module, "_show", closed)
    with pytest.raises(BrokenPipeError):
        await status_module._print_lines(cast(Any, OneLook()), False, True)

"""The lists of foreign test suites: how a line is parsed, and how a differing run is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.suites.catalogue import SUITES
from tests.suites.expected_list import FOLDER, Expectation, differences, parse
from tests.suites.librdkafka import reported
from tests.suites.run import outcomes

LINES = [
    "# a list",
    "",
    "pass a::one",
    "ours a::two[x y]: no transactions",
    "both a::three: three brokers",
]


def test_a_list_names_tests_and_the_reasons_they_owe() -> None:
    """Test names may contain blanks and colons."""
    assert parse(LINES) == {
        "a::one": Expectation("pass"),
        "a::two[x y]": Expectation("ours", "no transactions"),
        "a::three": Expectation("both", "three brokers"),
    }


@pytest.mark.parametrize("line", ["skip a::one", "ours a::one", "pass b::one"])
def test_a_line_without_sense_is_refused(line: str) -> None:
    """The cases: an unknown word, a missing reason, a repeated name."""
    with pytest.raises(ValueError, match="one"):
        parse(["pass b::one", line])


def test_a_run_as_the_list_says_differs_nowhere() -> None:
    """Each broker is compared only with its own expectations."""
    expected = parse(LINES)
    ours = {"a::one": "passed", "a::two[x y]": "failed", "a::three": "skipped"}
    assert differences(expected, ours, "ours") == []
    assert differences(expected, ours | {"a::two[x y]": "passed"}, "kafka") == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"a::one": "failed"}, "a::one: failed, expected pass"),
        ({"a::one": "skipped"}, "a::one: skipped, expected pass"),
        ({"a::two[x y]": "passed"}, "a::two[x y]: passed, expected ours no transactions"),
        ({"a::four": "passed"}, "a::four: passed, and on no list"),
    ],
)  # fmt: skip
def test_a_run_that_differs_is_named(change: dict[str, str], said: str) -> None:
    """A pass is a difference too, if the list expects a failure."""
    came = {"a::one": "passed", "a::two[x y]": "failed", "a::three": "failed"}
    assert differences(parse(LINES), came | change, "ours") == [said]


@pytest.mark.parametrize("outcome", ["passed", "failed"])
def test_what_is_left_to_the_moment_is_no_difference(outcome: str) -> None:
    """A test marked ``either`` must still run."""
    expected = parse(["either a::one: a race of its own"])
    assert differences(expected, {"a::one": outcome}, "kafka") == []
    assert differences(expected, {}, "ours") == [
        "a::one: not run, expected either a race of its own"
    ]


def test_librdkafkas_report_is_read_though_it_is_no_sound_json() -> None:
    """librdkafka does not escape its reports; a test reported as running counts as failed."""
    told = '{"tests": {"<MAIN>": {"name": "<MAIN>", "state": "PASSED"}, '
    told += '"x": {"name": "0001_a", "state": "PASSED", "report": [ {"said": "a "b" c"} ]}, '
    told += (
        '"y": {"name": "0002_b", "state": "RUNNING"}, "z": {"name": "0003_c", "state": "SKIPPED"}}'
    )
    assert reported(told) == {"0001_a": "passed", "0002_b": "failed", "0003_c": "skipped"}


def test_a_test_that_was_not_run_is_a_difference() -> None:
    """An excused test counts as well, or a suite that does not start would pass."""
    assert differences(parse(LINES[4:]), {}, "ours") == [
        "a::three: not run, expected both three brokers"
    ]


def test_a_test_whose_clean_up_failed_has_failed(tmp_path: Path) -> None:
    """pytest reports such a test twice."""
    report = tmp_path / "report.xml"
    cases = [
        ("one", ""),
        ("one", "<error/>"),
        ("two", "<skipped/>"),
        ("three", ""),
        ("four", "<failure/>"),
    ]
    report.write_text("<testsuites><testsuite>" + "".join(
        f'<testcase classname="a" name="{name}">{child}</testcase>' for name, child in cases
    ) + "</testsuite></testsuites>")  # fmt: skip
    assert outcomes(report) == {
        "a::one": "failed", "a::two": "skipped", "a::three": "passed", "a::four": "failed"
    }  # fmt: skip


def test_every_suite_has_a_list_in_each_of_its_protocols() -> None:
    """No list is left over, each list can be parsed, and each contains passing tests."""
    wanted = {
        f"{name}-{protocol}.txt" for name, suite in SUITES.items() for protocol in suite.protocols
    }
    assert {path.name for path in FOLDER.iterdir()} == wanted
    for path in FOLDER.iterdir():
        assert "pass" in {e.word for e in parse(path.read_text().splitlines()).values()}

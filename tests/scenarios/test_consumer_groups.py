"""Scenarios of consumer groups play as written; every Kafka test has a counterpart here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.coordination.consumer_script import Scenario, played, scenarios
from tests.support.named import is_test

FOLDER = Path(__file__).with_name("consumer_groups")
TESTS = FOLDER.parents[1]
FILES = {path.stem: list(scenarios(path.read_text())) for path in sorted(FOLDER.glob("*.txt"))}
ALL = [(name, scenario) for name, found in FILES.items() for scenario in found]
COVERAGE = FOLDER / "kafka_tests.csv"
#: The number of tests in each suite: the list must have all of them.
SUITES = {
    "GroupMetadataManagerTest": 252,
    "CurrentAssignmentBuilderTest": 14,
    "ConsumerProtocolMigrationTest": 20,
}


@pytest.mark.parametrize(("file", "scenario"), ALL, ids=[f"{name}: {s.title}" for name, s in ALL])
def test_a_scenario_plays_as_written(file: str, scenario: Scenario) -> None:
    """Each command yields exactly the answers below the command."""
    assert played(scenario) == list(scenario.steps)


def covered() -> list[tuple[str, str, str, str]]:
    """Return suite, test, kind of answer, and answer."""
    lines = [
        line for line in COVERAGE.read_text().splitlines() if line and not line.startswith("#")
    ]
    found = []
    for line in lines:
        suite, test, kind, answer = line.split(";", 3)
        found.append((suite, test, kind, answer))
    return found


def test_every_test_of_kafka_is_answered_once() -> None:
    """Each test is answered by name; the suites have their full length."""
    names = [(suite, test) for suite, test, _, _ in covered()]
    assert len(names) == len(set(names))
    assert {suite: sum(s == suite for s, _ in names) for suite in SUITES} == SUITES


def exists(answer: str) -> bool:
    """Whether the scenario (FILE: TITLE) or test (FILE::NAME) exists."""
    return answer in {f"{f}: {scenario.title}" for f, scenario in ALL} or is_test(f"tests/{answer}")


def test_every_promise_of_groups_names_tests_that_exist() -> None:
    """The case checks each row of the page on groups' promises."""
    page = (TESTS.parent / "docs" / "reference" / "group-tests.md").read_text()
    rows = [line.split("|")[2].strip() for line in page.splitlines() if line.startswith("| ")]
    named = [
        re.findall(r"`([^`]+)`", row.split("(`make")[0])
        for row in rows
        if row not in ("shown by", "---")
    ]
    assert [answer for row in named for answer in row if not exists(answer)] == []
    assert all(named), "a promise that nothing shows"
    assert len(named) > 30


def test_every_answer_to_a_test_of_kafka_exists() -> None:
    """The answer is a scenario, a test of ours, or a reason for leaving the test out."""
    for suite, test, kind, answer in covered():
        for part in (p.strip() for p in answer.split(" + ")):
            if kind in ("scenario", "test"):
                assert exists(part), (suite, test, part)
            else:
                assert (kind, len(part) > 20) == ("not applicable", True), (suite, test, kind, part)

"""``faust-assigner doctor``: the checked parts, and the findings that make the command fail."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from faust_assigner.cli import main
from faust_assigner.clients.groups import GroupNotFound
from faust_assigner.doctor import app_checks, app_facts, group_checks, group_facts
from faust_assigner.doctor.app_checks import Deployment
from faust_assigner.doctor.codes import finding
from faust_assigner.doctor.facts import AppFacts
from faust_assigner.status.collect import Where

BROKER = {"bootstrap_servers": ["a:1"], "security_protocol": "PLAINTEXT"}
TABLE: Any = SimpleNamespace(changelog="shop-totals-changelog")
FACTS = AppFacts(app_id="shop", sources={"orders": None, "rates": 3}, tables=(TABLE,))
#: A warning about an app and a note about a group.
APP, GROUP = finding("FA001", "a", level="warning"), finding("FA002", "g", level="note")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Record the checks of an app, its topics, and a group of three members."""
    found: list[Any] = []

    def check_app(*given: Any) -> tuple[Any, ...]:
        found.append(("app", *given))
        return (APP,)

    async def topics_of(connection: Any, names: Any) -> dict[str, str]:
        found.append(("topics", connection, names))
        return {"orders": "facts of orders"}

    async def look(where: Where, *, between_s: float, clock: Any) -> Any:
        found.append((where, between_s, clock))
        if where.group_id == "absent":
            raise GroupNotFound("no such group")
        return SimpleNamespace(
            evidence=SimpleNamespace(group=SimpleNamespace(members=("m0", "m1", "m2")))
        )

    monkeypatch.setattr(app_facts, "load", lambda name: FACTS)
    monkeypatch.setattr(app_checks, "check_app", check_app)
    monkeypatch.setattr(group_facts, "topics_of", topics_of)
    monkeypatch.setattr(group_facts, "look", look)
    monkeypatch.setattr(group_checks, "check_group", lambda facts: (GROUP,))
    monkeypatch.setattr(group_checks, "unchecked", lambda facts: ("w1 was not checked",))
    return found


def run(*arguments: str, code: int) -> dict[str, Any]:
    """Return the doctor's JSON; check the exit code."""
    done = CliRunner().invoke(main, ["doctor", *arguments, "--json"])
    assert done.exit_code == code, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def codes(found: dict[str, Any]) -> list[str]:
    """Return the codes of the findings."""
    return [one["code"] for one in found["findings"]]


@pytest.mark.parametrize(
    ("options", "deployment"),
    [
        ([], Deployment()),
        (["--workers", "4"], Deployment(workers=4)),
        (["--racks", "2"], Deployment(racks=2)),
        (["--grace", "0"], Deployment(grace_s=0.0)),
    ],
)
def test_an_app_alone_is_checked_without_a_connection(
    asked: list[Any], options: list[str], deployment: Deployment
) -> None:
    """The check uses the planned deployment, and the answer lists the unchecked parts."""
    found = run("-A", "shop.app", *options, code=1)
    assert asked == [("app", FACTS, deployment)]
    assert (found["looked_at"], codes(found)) == (["app shop"], ["FA001"])
    assert "add --bootstrap HOST:PORT" in found["unchecked"][0]


def test_with_brokers_the_topics_and_the_running_group_of_the_app_are_checked(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sources and changelogs are checked, missing topics are listed, the group is looked at twice."""
    monkeypatch.setenv("FAUST_ASSIGNER_URLS", "*.shop")
    workers = ("--worker", "http://a", "--worker", "http://b")
    found = run("-A", "shop.app", "--bootstrap", "a:1", *workers, "--grace", "9", code=1)
    names = {"orders", "rates", "shop-totals-changelog"}
    where = Where(
        connection=BROKER, group_id="shop", workers=("http://a", "http://b"), patterns=("*.shop",)
    )
    assert asked == [
        ("topics", BROKER, names),
        ("app", FACTS, Deployment(grace_s=9.0), {"orders": "facts of orders"}),
        (where, 4.0, time.time),
    ]
    assert found["looked_at"] == ["app shop", "group shop (3 members)"]
    assert codes(found) == ["FA001", "FA002"]
    assert found["unchecked"] == [
        "Topic rates does not exist yet",
        "Topic shop-totals-changelog does not exist yet",
        "w1 was not checked",
    ]


@pytest.mark.parametrize(
    ("options", "code", "unchecked"),
    [
        (["-A", "shop.app", "--group", "absent"], 2, None),
        (["--group", "absent"], 2, None),
        (["-A", "shop.app"], 1, "no such group"),
    ],
)
def test_a_group_must_exist_if_it_is_named(
    asked: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    code: int,
    unchecked: str | None,
) -> None:
    """An app without any started worker has no group, which is no error."""
    monkeypatch.setattr(app_facts, "load", lambda name: AppFacts(app_id="absent"))
    done = CliRunner().invoke(main, ["doctor", *options, "--bootstrap", "a:1", "--json"])
    assert done.exit_code == code, done.output
    if unchecked is None:
        assert done.stderr == "faust-assigner: no such group\n"
    else:
        found = json.loads(done.stdout)
        assert (found["looked_at"], found["unchecked"]) == (["app absent"], [unchecked])


def test_a_group_is_checked_without_its_code(asked: list[Any]) -> None:
    """The given group is checked, even beside an app with a different name."""
    found = run("--group", "other", "--bootstrap", "a:1", code=0)
    assert (found["looked_at"], codes(found)) == (["group other (3 members)"], ["FA002"])
    found = run("-A", "shop.app", "--group", "other", "--bootstrap", "a:1", code=1)
    assert found["looked_at"] == ["app shop", "group other (3 members)"]


@pytest.mark.parametrize(
    ("options", "code", "left"),
    [
        ([], 1, ["FA001", "FA002"]),
        (["--fail-on", "error"], 0, ["FA001", "FA002"]),
        (["--fail-on", "note"], 1, ["FA001", "FA002"]),
        (["--ignore", "fa001"], 0, ["FA002"]),
        (["--ignore", "FA001", "--fail-on", "note"], 1, ["FA002"]),
        (["--ignore", "fa001", "--ignore", "FA002", "--fail-on", "note"], 0, []),
    ],
)
def test_only_findings_that_are_not_accepted_fail_the_doctor(
    asked: list[Any], options: list[str], code: int, left: list[str]
) -> None:
    """Findings count from the given level on; ignored codes may be in lower case."""
    found = run("-A", "shop.app", "--bootstrap", "a:1", *options, code=code)
    assert codes(found) == left


def test_the_text_names_what_was_looked_at(asked: list[Any]) -> None:
    """The exit code equals that of the JSON output."""
    done = CliRunner().invoke(main, ["doctor", "-A", "shop.app"])
    assert done.exit_code == 1
    assert "app shop" in done.stdout


def test_the_grace_is_judged_by_the_workers_if_no_app_is_given(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planned deployment needs an app, but the number of a group's workers is known."""
    grace = finding("FA007", "short", level="warning")
    monkeypatch.setattr(group_checks, "check_group_grace", lambda facts, s: (grace,) * (s == 9))
    group = ("--bootstrap", "a:1", "--group", "shop")
    assert codes(run(*group, "--grace", "9", code=1)) == ["FA007", "FA002"]
    assert codes(run(*group, code=0)) == ["FA002"]
    assert codes(run("-A", "shop.app", *group, "--grace", "9", code=1)) == ["FA001", "FA002"]
    for option in ("--workers", "--racks"):
        done = CliRunner().invoke(main, ["doctor", *group, option, "3"])
        assert (done.exit_code, "add -A APP" in done.output) == (2, True)

"""``faust-assigner deploy-check``: its question, its waits, and the recoveries that it uses."""

from __future__ import annotations

import time
from collections.abc import Awaitable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.cli import deploy_check
from faust_assigner.deploy.judge import Budget
from faust_assigner.deploy.pauses import Recoveries
from faust_assigner.deploy.play import LOSE_RACK, ROLLING, SCALE, STOP, Question
from faust_assigner.deploy.report import FAILED, OK, UNKNOWN, Check
from faust_assigner.deploy.steps import Known
from faust_assigner.errors import ConfigError, TryAgain
from faust_assigner.ledger import Row
from tests.unit.cli.looks import KAFKA, REACH, WHERE, Looks, run
from tests.unit.deploy.test_render import report as deploy_report

pytestmark = pytest.mark.usefixtures("home")
START = datetime(2026, 11, 21, 3, 2, tzinfo=UTC)


# -- deploy-check


@pytest.mark.parametrize(
    ("arguments", "question"),
    [
        ((("b", "a"), False, None, None), Question(kind=STOP, workers=("b", "a"))),
        (((), True, None, None), Question(kind=ROLLING)),
        (((), False, "r", None), Question(kind=LOSE_RACK, rack="r")),
        (((), False, "", None), Question(kind=LOSE_RACK, rack="")),
        (((), False, None, 0), Question(kind=SCALE, size=0)),
        (((), False, None, 3), Question(kind=SCALE, size=3)),
    ],
)
def test_a_deploy_asks_one_question(arguments: tuple[Any, ...], question: Question) -> None:
    """A scale to zero workers is a question too."""
    assert deploy_check._parse_question(*arguments) == question


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ([], {}),
        (["--max-cold", "2"], {"budget": Budget(cold=2)}),
        (["--max-pause", "3"], {"budget": Budget(pause_s=3.0)}),
        (["--members", "4"], {"budget": Budget(members=4)}),
        (["--restart", "6"], {"known": Known(restart_s=6.0)}),
        (["--wait", "9"], {"wait_s": 9.0}),
        (["--every", "1"], {"every_s": 1.0}),
        (["--deadline", "2"], {"where": replace(WHERE, deadline_s=2.0)}),
    ],
)
@pytest.mark.parametrize("code", [0, 1, 2])
def test_each_option_of_a_deploy_check_reaches_it_alone(
    monkeypatch: pytest.MonkeyPatch, options: list[str], changes: dict[str, Any], code: int
) -> None:
    """The exit code is that of the verdict."""
    asked: list[dict[str, Any]] = []

    async def until_safe(*given: Any) -> Any:
        names = ("where", "question", "budget", "known", "wait_s", "every_s")
        asked.append(dict(zip(names, given, strict=True)))
        return deploy_report(exit_code=code)

    monkeypatch.setattr(deploy_check, "_until_safe", until_safe)
    run("deploy-check", "--rolling", *REACH, *options, code=code)
    base = {
        "where": WHERE,
        "question": Question(kind=ROLLING),
        "budget": Budget(),
        "known": Known(),
        "wait_s": 0.0,
        "every_s": 5.0,
    }
    assert asked == [{**base, **changes}]


def recovery(group: str, **more: Any) -> Row:
    """A recovery of five seconds."""
    values = {
        **{"group_id": group, "topic": "log", "source": "replay", "records": 7},
        **{"started": START, "ended": START + timedelta(seconds=5)},
    }
    return Row("recovery", {**values, **more})


def test_a_given_ledger_shows_the_recoveries_of_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of different tables and groups are ignored; Kafka's properties are passed on."""
    asked: list[Any] = []
    rows = [recovery("g"), recovery("h"), Row("decision", {"group_id": "g"}), "refused"]
    monkeypatch.setattr(
        "faust_assigner.pipeline.ledgers.rows.accepted_rows",
        lambda ledgers, *, properties: asked.append((ledgers, properties)) or rows,
    )
    found = deploy_check._load_known(("l", "m"), "g", 3.0, "client.properties")
    assert asked == [(("l", "m"), KAFKA)]
    assert (found.restart_s, found.recoveries.origin) == (3.0, "the ledger's recoveries")
    assert [(one.topic, one.seconds) for one in found.recoveries.known] == [("log", 5.0)]


GIVEN = Known(recoveries=Recoveries(origin="the ledger's recoveries"), restart_s=3.0)


@pytest.mark.parametrize(
    ("known", "lines", "origin", "is_asked"),
    [
        (GIVEN, [b"x"], "the ledger's recoveries", False),
        (Known(restart_s=3.0), [], "", True),
        (Known(restart_s=3.0), [b"x"], "the workers' recoveries", True),
    ],
)
async def test_without_a_given_ledger_the_workers_own_are_read(
    looks: type[Looks],
    monkeypatch: pytest.MonkeyPatch,
    known: Known,
    lines: list[bytes],
    origin: str,
    is_asked: bool,
) -> None:
    """A look reads at most two pages of ledger lines; the given restart time is kept."""
    looks.ledger = (lines, ())
    monkeypatch.setattr("faust_assigner.ledger.parse", lambda line: recovery("g"))
    evidence: Any = SimpleNamespace(group=SimpleNamespace(group_id="g"))
    asked: Any = looks(WHERE, time.time)
    found = await deploy_check._with_recoveries(known, asked, evidence)
    assert (found.restart_s, found.recoveries.origin) == (3.0, origin)
    assert looks.asked == ([(evidence, {"most_pages": 2})] if is_asked else [])
    assert len(found.recoveries.known) == (origin == "the workers' recoveries")


def verdict(code: int, *states: str) -> Any:
    """A report with one check per state."""
    checks = tuple(Check(name=f"c{n}", state=state, text="t") for n, state in enumerate(states))
    return deploy_report(exit_code=code, checks=checks)


UNSAFE = verdict(1, OK, UNKNOWN, FAILED, FAILED)


@pytest.mark.parametrize(
    ("answers", "wait_s", "must_answer", "said"),
    [
        ([verdict(0)], 10.0, [False], []),
        ([UNSAFE], 0.0, [True], []),
        ([UNSAFE], 4.9, [True], []),
        (["no broker answers", verdict(0)], 5.0, [False, True], [("no broker answers", 5)]),
        ([verdict(2, UNKNOWN), verdict(0)], 5.0, [False, True], [("c0: t", 5)]),
        ([UNSAFE, UNSAFE, UNSAFE], 10.0, [False, False, True], [("c2: t", 10)]),
        (
            ["no broker answers", UNSAFE, "no worker w9", verdict(2, UNKNOWN)],
            15.0,
            [False, False, False, True],
            [("no broker answers", 15), ("c2: t", 10), ("no worker w9", 5)],
        ),
    ],
)
async def test_a_deploy_check_waits_as_long_as_a_further_check_is_in_time(
    looks: type[Looks],
    slept: list[float],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answers: list[Any],
    wait_s: float,
    must_answer: list[bool],
    said: list[tuple[str, int]],
) -> None:
    """Checks are five seconds apart; a changed reason is logged; the last check must answer."""
    left, asked = list(answers), []

    async def one_look(*_: object, must_answer: bool) -> Any:
        asked.append(must_answer)
        return left.pop(0)

    monkeypatch.setattr(deploy_check, "_one_look", one_look)
    question = Question(kind=ROLLING)
    found = await deploy_check._until_safe(WHERE, question, Budget(), Known(), wait_s, 5.0)
    assert (found, asked) == (answers[-1], must_answer)
    assert capsys.readouterr().err.splitlines() == [
        f"faust-assigner: not yet, {why}; waiting {seconds} s more" for why, seconds in said
    ]
    assert slept == [5.0] * (len(answers) - 1)


@pytest.mark.parametrize(
    ("error", "must_answer", "is_raised"),
    [
        (TryAgain("silent"), False, False),
        (TryAgain("silent"), True, True),
        (ConfigError("no worker is called w9"), False, False),
        (ZeroDivisionError(), False, True),
    ],
)
async def test_a_check_without_an_answer_is_repeated_while_there_is_time(
    looks: type[Looks], error: Exception, must_answer: bool, is_raised: bool
) -> None:
    """A bug of this package is raised at once."""
    looks.answers.append(error)
    asked: Any = looks(WHERE, time.time)
    question = Question(kind=ROLLING)

    def check() -> Awaitable[Any]:
        return deploy_check._one_look(asked, question, Budget(), Known(), must_answer=must_answer)

    if is_raised:
        with pytest.raises(type(error)):
            await check()
    else:
        assert await check() == str(error)


async def test_a_check_judges_the_look_with_the_workers_recoveries(
    looks: type[Looks], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The verdict uses the question and the budget of the command."""
    monkeypatch.setattr(
        "faust_assigner.deploy.read.read_evidence", lambda evidence: ("seen", evidence)
    )
    monkeypatch.setattr("faust_assigner.deploy.judge.judge", lambda *given: given)

    async def with_recoveries(known: Any, looks: Any, evidence: Any) -> Any:
        return (known, evidence)

    monkeypatch.setattr(deploy_check, "_with_recoveries", with_recoveries)
    looks.answers.append("e")
    asked: Any = looks(WHERE, time.time)
    question, budget, known = Question(kind=ROLLING), Budget(cold=3), Known(restart_s=1.0)
    found: Any = await deploy_check._one_look(asked, question, budget, known, must_answer=True)
    assert found == (("seen", "e"), question, budget, (known, "e"))

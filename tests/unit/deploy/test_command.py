"""``faust-assigner deploy-check`` as a command: refused options, exit code without a broker."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner, Result

from faust_assigner.cli import main
from faust_assigner.cli.deploy_check import _one_look
from faust_assigner.cli.screen import console
from faust_assigner.deploy.judge import COPIES, Budget
from faust_assigner.deploy.pauses import Recoveries
from faust_assigner.deploy.play import NoSuchWorker, Question
from faust_assigner.deploy.render import render
from faust_assigner.deploy.steps import Known
from tests.unit.deploy.looks import asked, at_rest, evidence, look

NOWHERE = ("--bootstrap", "127.0.0.1:1", "--group", "shop")


def command(*arguments: str) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(main, ["deploy-check", *arguments])


def test_a_name_with_brackets_is_printed_as_text(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members choose their instance ids; no id may break the command."""
    monkeypatch.delenv("COLUMNS", raising=False)
    made = at_rest()
    made.offers["m1"] = {"holds": True, "instance_id": "[/x][red]"}
    made.round()
    report = asked(look(made, not_ready=("['orders/1'] [/y]",)), Question(kind="rolling"))
    console(width=200).print(render(report))
    shown = capsys.readouterr().out
    assert "[/x][red] stops" in shown
    assert "['orders/1'] [/y]" in shown


@pytest.mark.parametrize(
    "question", [(), ("shop-1", "--rolling"), ("--scale", "3", "--lose-rack", "az-b")], ids=str
)
def test_it_answers_one_question(question: tuple[str, ...]) -> None:
    """No question and two questions are wrong options: exit code 2."""
    done = command(*NOWHERE, *question)
    assert done.exit_code == 2
    assert "exactly one of" in done.output


def test_where_nobody_answers_it_cannot_be_told() -> None:
    """The exit code is 2, not the 75 of other commands: a deploy gate reads 0, 1 and 2."""
    done = command(*NOWHERE, "shop-1")
    assert done.exit_code == 2
    assert done.output.count("\n") == 1


def test_it_waits_as_long_as_it_is_told_to() -> None:
    """The reason is printed once, and the command ends with the last answer."""
    done = command(*NOWHERE, "shop-1", "--wait", "0.5", "--every", "0.1")
    assert done.exit_code == 2
    assert done.output.count("not yet") == 1


def test_a_ledger_that_is_not_there_is_an_error() -> None:
    """The command checks the ledger before it asks the group."""
    done = command(*NOWHERE, "shop-1", "--ledger", "/nowhere/at/all")
    assert done.exit_code == 2
    assert "no such ledger" in done.output


@pytest.mark.parametrize("option", ["--max-pause", "--wait", "--restart", "--every", "--deadline"])
@pytest.mark.parametrize("value", ["nan", "inf"])
def test_a_limit_that_is_no_finite_number_is_refused(option: str, value: str) -> None:
    """No pause exceeds NaN seconds, so every deploy would be within the budget."""
    done = command(*NOWHERE, "shop-1", option, value)
    assert done.exit_code == 2
    assert f"'{value}' is not a finite number" in done.output


async def test_a_wait_names_the_error_of_the_last_check() -> None:
    """A misspelled worker is not reported as a silent broker; the last check raises the error."""

    class Looking:
        async def look(self) -> Any:
            return evidence(at_rest())

    def one(*, must_answer: bool) -> Any:
        question = Question(kind="stop", workers=("nobody",))
        known = Known(recoveries=Recoveries(origin="a ledger"))
        looks: Any = Looking()
        return _one_look(looks, question, Budget(), known, must_answer=must_answer)

    assert await one(must_answer=False) == (
        "no worker 'nobody' in the group; its members are w0, w1, w2"
    )
    with pytest.raises(NoSuchWorker):
        await one(must_answer=True)


def test_an_empty_group_is_not_in_a_round() -> None:
    """The group's state is not Stable; the report names the reason."""
    made = at_rest()
    made.state = "Empty"
    made.metadata.clear()
    checks = {one.name: one.text for one in asked(look(made), Question(kind="rolling")).checks}
    assert checks["no round is under way"] == "the group has no members"
    assert checks[COPIES] == "the group has no members"

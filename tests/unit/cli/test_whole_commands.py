"""Commands with all their options at once, with the wrong options, and with the texts that they print."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.cli import deploy_check
from faust_assigner.clients import groups
from faust_assigner.clients import rolls as rolls_of
from faust_assigner.clients.rolls import Rolls, Worker
from faust_assigner.deploy.judge import Budget
from faust_assigner.deploy.play import STOP, Question
from faust_assigner.deploy.report import FAILED, OK, Check
from faust_assigner.deploy.steps import Known
from faust_assigner.errors import ConfigError, TryAgain
from faust_assigner.ledger import Row
from faust_assigner.pipeline import console
from faust_assigner.pipeline.cluster import Cluster
from faust_assigner.pipeline.snapshots import job as snapshot_job
from tests.unit.cli.looks import BROKER, REACH, WHERE, Looks, run
from tests.unit.cli.test_groups_command import GROUP, answering, cells, listed, member
from tests.unit.deploy.test_render import report as deploy_report

pytestmark = pytest.mark.usefixtures("home")
AT, CONFIG = ("--bootstrap", "a:1"), ("--config", "client.properties")
WITH_CONFIG = {**BROKER, "request_timeout_ms": 700}


# -- groups


@pytest.mark.parametrize(
    ("module", "name", "arguments", "answer", "more"),
    [
        (groups, "list_groups", ("list",), [listed("g")], ()),
        (groups, "describe_group", ("describe", "g"), GROUP, ("g",)),
        (rolls_of, "rolls", ("rolls", "g"), Rolls(chosen="faust", workers=[]), ("g",)),
        (groups, "retire", ("retire", "g", "--instance-id=b"), {"b": ""}, ("g", ("b",))),
    ],
)
def test_each_command_about_groups_connects_with_the_given_properties(
    monkeypatch: pytest.MonkeyPatch,
    module: Any,
    name: str,
    arguments: tuple[str, ...],
    answer: Any,
    more: tuple[Any, ...],
) -> None:
    """The properties are those of --config; --bootstrap has priority."""
    asked: list[Any] = []
    monkeypatch.setattr(module, name, answering(answer, asked))
    run("groups", *arguments, *AT, *CONFIG)
    assert asked == [(WITH_CONFIG, *more)]


def test_a_group_without_members_has_its_partitions_and_lag(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stopped app still has committed offsets."""
    monkeypatch.setattr(groups, "describe_group", answering(replace(GROUP, members=()), []))
    shown = [" ".join(line) for line in cells(run("groups", "describe", "g", *AT).stdout)]
    assert shown[2:] == [
        "topic partition committed end lag owner",
        "t 0 3 10 7 a",
        "t 1 8 10 2 b",
        "u 0 - 50 - -",
        "total lag 9, of 2 of 3 partitions",
    ]


def test_a_long_name_is_folded_and_never_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe has 160 columns, and the name of a member may be longer."""
    name = "".join(f"worker-{number:02}-" for number in range(20))
    told = replace(GROUP, members=(member(name, epoch=3),), partitions=())
    monkeypatch.setattr(groups, "describe_group", answering(told, []))
    shown = run("groups", "describe", "g", *AT).stdout.splitlines()
    column = "".join(
        line[: line.find(" ")] for line in shown[4:] if line.startswith(("w", "-", "1", "0"))
    )
    assert "…" not in "".join(shown)
    assert max(map(len, shown)) <= 160
    assert column.startswith("worker-00-")


def test_each_worker_of_a_roll_has_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both looks name every worker, the chosen protocol and the whole advice."""
    workers = [
        Worker(member_id="m1", client_id="c2", host="/h3", kind="stock"),
        Worker(member_id="m4", client_id="c5", host="/h6", kind="eager"),
    ]
    found = Rolls(chosen="faust", workers=workers)
    monkeypatch.setattr(rolls_of, "rolls", answering(found, []))
    lines = run("groups", "rolls", "g", *AT).stdout.splitlines()
    assert cells("\n".join(lines)) == [
        ["member", "client", "host", "worker"],
        ["m1", "c2", "/h3", "stock"],
        ["m4", "c5", "/h6", "eager"],
        ["the", "last", "round:", "faust"],
        *(line.split() for line in found.roll_steps),
    ]
    assert json.loads(run("groups", "rolls", "g", *AT, "--json").stdout) == {
        "chosen": "faust",
        "workers": [vars(one) for one in workers],
        "advice": list(found.roll_steps),
    }


# -- deploy-check


@pytest.mark.parametrize("error", [TryAgain("silent"), ConfigError("wrong"), OSError("broken")])
def test_a_deploy_check_with_all_options_that_fails_cannot_tell(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Any failure has exit code 2, because 1 means that the stop is not safe."""
    asked: list[Any] = []

    async def until_safe(*given: Any) -> Any:
        asked.append(given)
        raise error

    def load_known(*given: Any) -> Known:
        asked.append(given)
        return Known(restart_s=4.0)

    monkeypatch.setattr(deploy_check, "_until_safe", until_safe)
    monkeypatch.setattr(deploy_check, "_load_known", load_known)
    options = ("--max-cold=2", "--max-pause=3", "--members=5", "--restart=6", "--wait=7")
    sources = ("--every=8", "--ledger=l", "--ledger=m", "--worker=http://w")
    done = run("deploy-check", "b", "a", *REACH, *CONFIG, *options, *sources, code=2)
    known, (where, *rest) = asked
    assert known == (("l", "m"), "g", 6.0, "client.properties")
    assert (where.group_id, where.workers) == ("g", ("http://w",))
    assert where.connection["request_timeout_ms"] == 700
    question = Question(kind=STOP, workers=("b", "a"))
    budget = Budget(cold=2, pause_s=3.0, members=5)
    assert rest == [question, budget, Known(restart_s=4.0), 7.0, 8.0]
    assert done.stderr == f"faust-assigner: {'OSError: ' * isinstance(error, OSError)}{error}\n"


@pytest.mark.parametrize(
    "options", [(), ("w1", "--rolling"), ("--rolling", "--scale=0"), ("w", "--lose-rack=")]
)
def test_a_deploy_check_of_no_or_two_questions_is_refused(options: tuple[str, ...]) -> None:
    """The text lists the possible questions."""
    done = run("deploy-check", *REACH, *options, code=2)
    assert "give exactly one of WORKER, --rolling, --lose-rack and --scale" in done.stderr


def test_only_the_table_of_recoveries_has_recoveries() -> None:
    """A table with a similar name is a different table."""
    rows = [Row(name, {"group_id": "g"}) for name in ("recoveries", "rec", "decision")]
    assert deploy_check._select_recoveries(rows, "g", "o").known == ()


async def test_the_reason_of_a_failed_check_is_the_text_of_its_exit(looks: type[Looks]) -> None:
    """An operating system's error is named by its class; the clock is the wall clock."""
    looks.answers += [ConnectionRefusedError("no")]
    asked: Any = looks(WHERE, time.time)
    question = Question(kind=STOP, workers=("a",))
    said = await deploy_check._one_look(asked, question, Budget(), Known(), must_answer=False)
    assert said == "ConnectionRefusedError: no"


async def test_the_looks_of_a_deploy_check_have_the_wall_clock_and_are_closed(
    looks: type[Looks], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ages of decisions and recoveries are seconds since 1970."""
    safe = deploy_report()

    async def one_look(*_: object, must_answer: bool) -> Any:
        return safe

    monkeypatch.setattr(deploy_check, "_one_look", one_look)
    clock = SimpleNamespace(monotonic=lambda: 5.0, time=lambda: 6.0)
    monkeypatch.setattr(deploy_check, "time", clock)
    question = Question(kind=STOP, workers=("a",))
    found = await deploy_check._until_safe(WHERE, question, Budget(), Known(), 0.0, 5.0)
    assert found is safe
    assert (looks.made, looks.asked) == ([(WHERE, clock.time)], ["closed"])


def test_a_verdict_has_the_width_of_a_report_and_its_exit_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The lines of a report in a pipe have up to 120 columns."""
    text = " ".join(f"word{number}" for number in range(10, 99))
    checks = (Check(name="c", state=OK, text="t"), Check(name="d", state=FAILED, text=text))

    async def until_safe(*_: object) -> Any:
        return deploy_report(exit_code=1, verdict="not safe", checks=checks)

    monkeypatch.setattr(deploy_check, "_until_safe", until_safe)
    monkeypatch.delenv("COLUMNS", raising=False)
    lines = run("deploy-check", "--rolling", *REACH, code=1).stdout.splitlines()
    assert 110 < max(map(len, lines)) <= 120
    assert "word98" in " ".join(lines)


# -- snapshot


def test_a_snapshots_brokers_may_be_in_the_properties(
    monkeypatch: pytest.MonkeyPatch, home: Any
) -> None:
    """All options of a snapshot at once reach the job in their places."""
    told: list[Any] = []
    (home / "kafka.properties").write_text("bootstrap.servers=b:2\nclient.id=me\n")
    monkeypatch.setattr(snapshot_job, "run", lambda *given: told.append(given[:2]) or [])
    monkeypatch.setattr(console, "show_manifests", lambda *_, **__: None)
    options = ("--topic=t", "--to=d", "--previous", "--max-layers=3", "--no-spark", "--master=m")
    codecs = ("--connector=python", "--memory-mb=5", "--key-codec=raw", "--value-codec=json")
    run("snapshot", "--config=kafka.properties", *options, *codecs)
    [(asked, master)] = told
    assert master == "m"
    assert asked == snapshot_job.SnapshotOptions(
        Cluster("b:2", {"client.id": "me"}),
        "t",
        "d",
        True,
        True,
        "python",
        5 << 20,
        ("raw", "json"),
        3,
    )
    done = run("snapshot", *CONFIG, "--topic=t", code=2)
    assert "Missing option: --bootstrap, --to" in done.stderr

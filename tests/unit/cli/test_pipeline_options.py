"""Options of the pipeline's commands: each option changes only its own part of the job's request."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from faust_assigner.errors import ConfigError
from faust_assigner.pipeline import console, session
from faust_assigner.pipeline.cluster import Cluster
from faust_assigner.pipeline.history import job as history_job
from faust_assigner.pipeline.history.options import HistoryOptions
from faust_assigner.pipeline.history.quality import GateFailed, Gates
from faust_assigner.pipeline.ledgers.period import Period
from faust_assigner.pipeline.ledgers.refusals import Tolerance
from faust_assigner.pipeline.progress import Progress
from faust_assigner.pipeline.simulate.request import Request
from faust_assigner.pipeline.simulate.scenarios import Shape
from faust_assigner.pipeline.simulate.what_if import Change
from faust_assigner.pipeline.weights import job as weights_job
from faust_assigner.simulation.fleet import Costs
from faust_assigner.weights.limits import Limits
from tests.unit.cli.looks import KAFKA, run

pytestmark = pytest.mark.usefixtures("home")
DAY = datetime(2026, 11, 20, tzinfo=UTC)


# -- history


class Written:
    """A report; ``check`` is the verdict about the data."""

    def __init__(self, told: list[Any], error: Exception | None = None) -> None:
        self.quality, self._told, self._error = self, told, error

    def to_json(self) -> str:
        """Return a document."""
        return '{"a": 1}\n'

    def check(self) -> None:
        """Raise the error of a missed gate."""
        self._told.append("check")
        if self._error is not None:
            raise self._error


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The requests of ``history``, and the shown reports."""
    found: list[Any] = []

    def visit(options: HistoryOptions, progress: Progress) -> Written:
        found.append(options)
        return Written(found)

    monkeypatch.setattr(history_job, "run_here", visit)
    monkeypatch.setattr(console, "show_history", lambda report, out: found.append(("shown", out)))
    return found


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ([], {}),
        (["--ledger", "m"], {"ledgers": ("l", "m")}),
        (["--format", "delta"], {"format": "delta"}),
        (["--stream"], {"stream": True}),
        (["--stream", "--every", "5"], {"stream": True, "every_s": 5.0}),
        (["--since", "2026-11-20"], {"period": Period(since=DAY)}),
        (["--until", "2026-11-20"], {"period": Period(until=DAY)}),
        (["--fail-if-empty"], {"fail_if_empty": True}),
        (["--allow-empty"], {"fail_if_empty": False}),
        (["--max-refused", "7"], {"max_refused": Tolerance(most=7)}),
        (["--min-days", "3"], {"gates": Gates(min_days=3)}),
        (["--max-age", "2d"], {"gates": Gates(max_age_s=172_800.0)}),
        (["--config", "client.properties"], {"properties": KAFKA}),
        (["--packages", "a:b:1,c:d:2"], {"packages": ("a:b:1", "c:d:2")}),
        (["--connector", "python"], {"connector": "python"}),
    ],
)
def test_each_option_of_a_history_reaches_the_job_alone(
    told: list[Any], options: list[str], changes: dict[str, Any]
) -> None:
    """The report is shown with its folder before its data is judged."""
    run("history", "--no-spark", "--ledger", "l", "--out", "o", *options)
    wanted = replace(HistoryOptions(("l",), "o"), **changes)
    assert told == [wanted, ("shown", "o"), "check"]


def test_an_interval_without_a_stream_is_refused(told: list[Any]) -> None:
    """Repeating a complete history would read all lines again each time."""
    run("history", "--no-spark", "--ledger", "l", "--out", "o", "--every", "5", code=2)
    assert told == []


def test_a_history_that_misses_a_gate_is_shown_before_the_command_fails(
    told: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The JSON output is only the document."""
    missed = Written(told, GateFailed("too few days"))
    monkeypatch.setattr(history_job, "run_here", lambda *_: missed)
    done = run("history", "--no-spark", "--ledger", "l", "--out", "o", "--json", code=3)
    assert (done.stdout, told) == ('{"a": 1}\n', ["check"])
    assert "too few days" in done.stderr


@pytest.mark.parametrize(("master", "started"), [("local[2]", "local[2]"), ("", None)])
@pytest.mark.parametrize("error", [None, ConfigError("wrong")])
def test_a_history_on_spark_is_checked_before_its_session_which_ends_with_the_run(
    told: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    master: str,
    started: str | None,
    error: Exception | None,
) -> None:
    """Without a master, spark-submit's own is used; a failed run also ends the session."""

    def visit(spark: object, options: HistoryOptions, progress: Progress) -> Written:
        told.append(("run", spark, progress.stage))
        if error is not None:
            raise error
        return Written([])

    monkeypatch.setattr(history_job, "check", lambda options: told.append("check"))
    monkeypatch.setattr(
        history_job, "session_for", lambda options, master: told.append((options, master)) or "s"
    )
    monkeypatch.setattr(history_job, "run", visit)
    monkeypatch.setattr(session, "release", lambda spark: told.append(("released", spark)))
    code = 2 if error else 0
    run("history", "--ledger", "l", "--out", "o", "--master", master, "--json", code=code)
    options = HistoryOptions(("l",), "o")
    assert told == ["check", (options, started), ("run", "s", "starting Spark"), ("released", "s")]


# -- weights

WEIGHTS = weights_job.Request(
    ("l",), DAY, "w", limits=Limits(0.25, 4.0), half_life_s=43_200.0, max_drift=0.5, decisions=10
)


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ([], {}),
        (["--ledger", "m"], {"ledgers": ("l", "m")}),
        (["--by", "cpu"], {"by": "cpu"}),
        (["--clamp", "0.5:2"], {"limits": Limits(0.5, 2.0)}),
        (["--since", "2026-11-20"], {"period": Period(since=DAY)}),
        (["--until", "2026-11-20"], {"period": Period(until=DAY)}),
        (["--half-life", "2d"], {"half_life_s": 172_800.0}),
        (["--max-drift", "20%"], {"max_drift": 0.2}),
        (["--shadow"], {"shadow": True}),
        (["--decisions", "3"], {"decisions": 3}),
        (["--replicas", "2"], {"replicas": 2}),
        (["--max-refused", "1%"], {"max_refused": Tolerance(share=0.01)}),
        (["--bootstrap", "a:1", "--topic", "t"], {"cluster": Cluster("a:1"), "topic": "t"}),
        (["--config", "client.properties"], {"properties": KAFKA}),
    ],
)
def test_each_option_of_weights_reaches_the_job_alone(
    asked: list[Any], options: list[str], changes: dict[str, Any]
) -> None:
    """The time of the request is the time of the command, in UTC."""
    done = run("weights", "--no-spark", "--ledger", "l", "--out", "w", *options)
    (request,) = asked
    assert abs(datetime.now(UTC) - request.now) < timedelta(minutes=1)
    assert replace(request, now=DAY) == replace(WEIGHTS, **changes)
    assert done.stdout == "shown {'a': 1}\n"


def test_an_age_is_counted_back_from_the_command(asked: list[Any]) -> None:
    """A day before the command is in UTC; a local time zone would shift it by hours."""
    run("weights", "--no-spark", "--ledger", "l", "--out", "w", "--since", "1d")
    since = asked[0].period.since
    assert abs(datetime.now(UTC) - timedelta(days=1) - since) < timedelta(minutes=1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "give --out FILE"),
        (["--bootstrap", "a:1", "--out", "w"], "--bootstrap and --topic require each other"),
        (["--topic", "t"], "no brokers are given"),
    ],
)
def test_weights_without_a_place_are_refused(
    asked: list[Any], options: list[str], words: str
) -> None:
    """The error comes before any ledger is read."""
    assert words in run("weights", "--no-spark", "--ledger", "l", *options, code=2).output
    assert asked == []


def test_weights_may_go_to_a_topic_alone(asked: list[Any]) -> None:
    """The cluster comes from --config, and the report is JSON on request."""
    Path("kafka").write_text("bootstrap.servers=b:2\n")
    chosen = ("--topic", "t", "--config", "kafka", "--json")
    assert json.loads(run("weights", "--no-spark", "--ledger", "l", *chosen).stdout) == {"a": 1}
    assert (asked[0].out, asked[0].topic, asked[0].cluster) == (None, "t", Cluster("b:2"))


# -- simulate

SIMULATION = Request(
    1000,
    1,
    "o",
    ("ours", "ours+static", "ours+static+weights", "stock", "stock+static"),
    (0, 1, 2),
    Shape(members=(3, 6), partitions=(12, 36), racks=(1, 3)),
    Costs(),
    jobs=2,
    now=DAY,
)


def at_day(request: Request) -> Request:
    """Return the request with a fixed time; its own time is that of the call."""
    assert abs(datetime.now(UTC) - request.now) < timedelta(minutes=1)
    return replace(request, now=DAY)


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ([], {}),
        (["--scenarios", "5"], {"scenarios": 5}),
        (["--seed", "9"], {"seed": 9}),
        (["--ledger", "l", "--ledger", "m"], {"ledgers": ("l", "m")}),
        (["--group", "g"], {"group_id": "g"}),
        (["--policies", "stock, ours"], {"policies": ("stock", "ours")}),
        (["--replicas", "2,0"], {"replicas": (2, 0)}),
        (["--members", "4:5"], {"shape": replace(SIMULATION.shape, members=(4, 5))}),
        (["--partitions", "20"], {"shape": replace(SIMULATION.shape, partitions=(20, 20))}),
        (["--racks", "2"], {"shape": replace(SIMULATION.shape, racks=(2,))}),
        (["--session-timeout", "12"], {"session_timeout_s": 12.0}),
        (["--max-refused", "7"], {"max_refused": Tolerance(most=7)}),
        (["--config", "client.properties"], {"properties": KAFKA}),
        (["--jobs", "3"], {"jobs": 3}),
    ],
)
def test_each_option_of_a_simulation_reaches_the_job_alone(
    asked: list[Any], options: list[str], changes: dict[str, Any]
) -> None:
    """The report is shown with its folder."""
    done = run("simulate", "--no-spark", "--out", "o", "--jobs", "2", *options)
    assert list(map(at_day, asked)) == [replace(SIMULATION, **changes)]
    assert done.stdout == "shown {'a': 1} o\n"


@pytest.mark.parametrize(
    ("options", "change"),
    [
        (["--add", "2"], Change(add=2)),
        (["--remove", "a", "--remove", "b"], Change(remove=("a", "b"))),
        (["--lose-rack", "r"], Change(lose_rack="r")),
    ],
)
def test_one_change_is_played_instead_of_scenarios(
    asked: list[Any], options: list[str], change: Change
) -> None:
    """A single change needs neither a folder nor Spark."""
    done = run("simulate", "--jobs", "2", *options)
    assert [(at_day(request), made) for request, made in asked] == [
        (replace(SIMULATION, out=""), change)
    ]
    assert done.stdout == "shown {'a': 1}\n"


def test_a_simulation_without_a_folder_is_refused(asked: list[Any]) -> None:
    """Without a folder the rows would be lost."""
    assert "Missing option '--out'" in run("simulate", "--no-spark", code=2).output
    assert asked == []


@pytest.mark.parametrize(
    ("option", "text", "words"),
    [
        ("--racks", "2,0", "numbers from 1 on"),
        ("--partitions", "1:9", "from:to, from 2 on"),
        ("--members", "0", "from:to, from 1 on"),
        ("--replicas", "x", "numbers from 0 on"),
    ],
)
def test_a_simulation_has_its_least_numbers(
    asked: list[Any], option: str, text: str, words: str
) -> None:
    """A fleet needs a rack, a member and two partitions; it may have no standbys."""
    done = run("simulate", "--no-spark", "--out", "o", option, text, code=2)
    assert words in " ".join(done.output.split())
    assert option in done.output
    assert asked == []

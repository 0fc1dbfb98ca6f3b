"""Distributions, the settings table, and equal results of both ways to run."""

from __future__ import annotations

import datetime as dt
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from faust_assigner.cli import main
from faust_assigner.errors import ConfigError
from faust_assigner.pipeline.simulate.policies import Placement, arms, load
from faust_assigner.pipeline.simulate.run import Run, play, play_here
from faust_assigner.pipeline.simulate.settings import recommend, state_class, summarise
from faust_assigner.pipeline.simulate.sim_result import SimRow


def row(
    scenario: int, policy: str, standbys: int, stopped: float, worst_load: float = 1.0, **more: Any
) -> SimRow:
    """Return a made-up result."""
    values: dict[str, Any] = {
        "group_id": "g",
        "dt": dt.date(2000, 1, 1),
        "scenario_id": f"{scenario:06d}",
        "seed": 1,
        "members": 3,
        "partitions": 10,
        "standbys": standbys,
        "policy": policy,
        "moved": 4,
        "imbalance": 1.0,
        "unavailable_s": stopped,
        "cold_moves": 1,
        "worst_load": worst_load,
        "worst_gap_s": 1.0,
        "restored": 0.0,
        "rebalances": 2,
        "idle_members": 0,
        "racks": 1,
        "state": "small",
    }
    return SimRow(**{**values, **more})


@pytest.mark.parametrize(
    ("records", "name"),
    [
        (0.0, "none"),
        (0.5, "small"),
        (10_000.0, "small"),
        (10_001.0, "medium"),
        (100_000.0, "medium"),
        (100_001.0, "large"),
    ],
)
def test_fleets_are_divided_by_the_records_of_an_average_partition(
    records: float, name: str
) -> None:
    """A bound belongs to the lower class."""
    assert state_class(records) == name


def test_percentiles_are_exact_and_linear() -> None:
    """Ten scenarios with 0..9 s have p50 4.5 and p90 8.1, and a tenth per partition."""
    found = summarise(row(number, "ours", 1, float(number)) for number in reversed(range(10)))[0]
    assert (found["unavailable_s_p50"], found["unavailable_s_p90"]) == (4.5, pytest.approx(8.1))
    assert found["unavailable_s_per_partition_p90"] == pytest.approx(0.81)
    assert (found["state"], found["racks"], found["scenarios"]) == ("all", "all", 10)


def test_the_fewest_standbys_among_settings_that_are_as_calm_win() -> None:
    """Two standbys are only 5% calmer than one, and none is 50% worse: one is chosen."""
    rows = [
        row(number, "ours", standbys, stopped)
        for number in range(5)
        for standbys, stopped in ((0, 150.0), (1, 105.0), (2, 100.0))
    ]
    rows += [row(number, "stock", 1, 130.0) for number in range(5)]
    line = recommend(summarise(rows), policy="ours")[0]
    assert (line.policy, line.standbys) == ("ours", 1)
    assert (line.instead_of, line.its_unavailable_s_per_partition_p90) == (
        "stock, standbys 1",
        13.0,
    )


def test_of_equally_calm_settings_the_even_ones_are_kept() -> None:
    """A switch with a fifth less load on the heaviest member is kept."""
    rows = [
        row(number, policy, 1, 100.0, load)
        for number in range(5)
        for policy, load in (("ours", 2.0), ("ours+weights", 1.6))
    ]
    assert recommend(summarise(rows), policy="ours")[0].policy == "ours+weights"


def test_the_table_has_a_line_per_class_of_fleet() -> None:
    """State and racks divide the fleets; the line of all fleets is first."""
    rows = [row(0, "ours", 1, 1.0), row(1, "ours", 1, 1.0, state="large", racks=3)]
    lines = recommend(summarise(rows), policy="ours")
    assert [(line.state, line.racks) for line in lines] == [
        ("all", "all"),
        ("small", "one"),
        ("large", "several"),
    ]
    assert lines[0].its_unavailable_s_per_partition_p90 is None


def test_arms_are_policies_with_switches_and_standbys() -> None:
    """aiokafka's strategies have no standbys: each has a single arm."""
    found = arms(["ours+static+weights", "aiokafka-sticky"], [0, 2])
    assert [(arm.label, arm.replicas) for arm in found] == [
        ("ours+static+weights", 0),
        ("ours+static+weights", 2),
        ("aiokafka-sticky", 0),
    ]
    assert (found[0].static, found[0].weighted, found[2].claims_files) == (True, True, False)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("best", "unknown policy 'best'"),
        ("ours+fast", "unknown switch 'fast'"),
        ("nowhere.at.all:plan", "cannot be loaded"),
        ("json:nothing", "cannot be loaded"),
    ],
)
def test_an_unknown_policy_is_refused_before_anything_runs(name: str, said: str) -> None:
    """The message names the fault."""
    with pytest.raises(ConfigError, match=said):
        arms([name])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("os:sep", "is not callable"),
        (":plan", "no module"),
        ("json:", "no callable"),
        (".here:plan", "Error"),
        ("os:getcwd", "TypeError"),
        ("builtins:dict", "TypeError"),
        ("builtins:exit", "TypeError"),
        (f"{__name__}:answers_nothing", "AttributeError"),
        (f"{__name__}:answers_text", "'ab'"),
        (f"{__name__}:leaves", "SystemExit"),
    ],
)
def test_what_is_no_policy_is_refused_in_one_line(name: str, said: str) -> None:
    """For any path the exit code is 2, with the name and the reason; no scenario is played."""
    found = CliRunner().invoke(
        main, ["simulate", "--no-spark", "--out", "unused", "--policies", name]
    )
    assert found.exit_code == 2
    assert found.stderr.count("\n") == 1
    assert f"policy {name!r}" in found.stderr
    assert said in found.stderr


def answers_nothing(*_args: Any, **_said: Any) -> None:
    """Give no plan, although called as a policy."""


def answers_text(*_args: Any, **_said: Any) -> Placement:
    """Return a plan with partitions that are not numbers."""
    return Placement({"first": {"source": "ab"}}, {})


def leaves(*_args: Any, **_said: Any) -> None:
    """End the process, like a script's main."""
    raise SystemExit("usage: leaves")


def test_a_policy_may_be_any_callable_of_the_callers() -> None:
    """``package.module:callable`` is loaded by its path."""
    assert load("faust_assigner.planner:plan") is load("ours")


@pytest.mark.slow
def test_processes_and_a_loop_give_identical_rows() -> None:
    """Floats are compared bit by bit."""
    run = Run(5, arms=arms(["ours+static", "stock"], [1]))
    rows = play_here(run, 6)
    assert play_here(run, 6, jobs=2) == rows
    assert list(play(run, [4])) == [found for found in rows if found.scenario_id == "000004"]


def test_every_built_in_policy_plays_every_scenario() -> None:
    """Numbers are finite, moves are whole numbers, and stock never claims files."""
    names = [
        "ours",
        "ours+static+weights",
        "stock",
        "stock+static",
        "aiokafka-roundrobin",
        "aiokafka-sticky",
    ]
    rows = play_here(Run(11, arms=arms(names, [0, 1])), 3)
    assert len(rows) == 3 * (4 * 2 + 2)
    for found in rows:
        assert found.cold_moves <= found.moved
        assert found.worst_load >= found.imbalance >= 1.0
        assert math.isfinite(found.unavailable_s)
        assert found.unavailable_s >= found.worst_gap_s >= 0


def test_the_command_writes_rows_and_a_report_twice_the_same(tmp_path: Path) -> None:
    """``simulate --no-spark`` prints the columns named in pipeline.md; a rerun changes no byte."""
    import pyarrow.parquet as pq

    seen = []
    for _ in range(2):
        done = CliRunner().invoke(
            main,
            [
                "simulate",
                "--scenarios",
                "4",
                "--seed",
                "2",
                "--out",
                str(tmp_path),
                "--no-spark",
                "--jobs",
                "1",
                "--replicas",
                "0,1",
                "--policies",
                "ours,stock",
            ],
        )
        assert done.exit_code == 0, done.output
        seen.append(
            {file.name: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
        )
    assert seen[0] == seen[1]
    assert "Settings: " in done.output
    table = pq.read_table(tmp_path / "sim_result")
    assert table.column_names[:11] == [
        "group_id",
        "dt",
        "scenario_id",
        "seed",
        "members",
        "partitions",
        "standbys",
        "policy",
        "moved",
        "imbalance",
        "unavailable_s",
    ]
    assert table.num_rows == 16
    report = json.loads((tmp_path / "report.json").read_text())
    assert set(report) == {"options", "sim_summary", "sim_settings", "replay", "events", "advice"}


def test_it_runs_where_neither_spark_nor_arrow_is_installed(tmp_path: Path) -> None:
    """The base install writes the same rows as JSON lines."""
    program = (
        "import sys\n"
        "for name in ('pyspark', 'pandas', 'pyarrow', 'fsspec'): sys.modules[name] = None\n"
        "from faust_assigner.cli import main; main()"
    )
    subprocess.run(
        [
            sys.executable,
            "-c",
            program,
            "simulate",
            "--no-spark",
            "--jobs",
            "1",
            "--scenarios",
            "2",
            "--policies",
            "ours",
            "--replicas",
            "1",
            "--out",
            str(tmp_path),
        ],
        check=True,
        capture_output=True,
    )
    lines = (tmp_path / "sim_result" / "part-00000.jsonl").read_text().splitlines()
    expected = play_here(Run(1, arms=arms(["ours"], [1])), 2)
    assert [json.loads(line) for line in lines] == [
        {**found._asdict(), "dt": found.dt.isoformat()} for found in expected
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--replicas", "one"],
        ["--seed", "-1"],
        ["--ledger", "kafka://127.0.0.1:1"],
        ["--members", "8:3"],
        ["--members", "0:3"],
        ["--policies", "nobody"],
        ["--ledger", "/nowhere/at/all"],
    ],
)
def test_impossible_options_are_said_with_exit_code_2(arguments: list[str], tmp_path: Path) -> None:
    """The command writes no file and prints no traceback."""
    done = CliRunner().invoke(
        main, ["simulate", "--no-spark", "--out", str(tmp_path / "out"), *arguments]
    )
    assert done.exit_code == 2, done.output
    assert not (tmp_path / "out").exists()


def test_a_topic_whose_brokers_are_away_is_tried_again_later(tmp_path: Path) -> None:
    """The exit code is 75, as on Spark."""
    done = CliRunner().invoke(
        main,
        [
            "simulate",
            "--no-spark",
            "--out",
            str(tmp_path),
            "--ledger",
            "kafka://127.0.0.1:1/ledger",
        ],
    )
    assert done.exit_code == 75, done.output


def test_the_other_policy_stands_beside_ours_under_the_same_conditions() -> None:
    """Membership and standbys are equal: dynamic stock would lose by its membership alone."""
    stopped = {
        ("ours+static", 1): 50.0,
        ("stock", 1): 200.0,
        ("stock+static", 1): 60.0,
        ("stock+static", 2): 40.0,
    }
    rows = [
        row(number, policy, standbys, seconds + number)
        for number in range(5)
        for (policy, standbys), seconds in stopped.items()
    ]
    line = recommend(summarise(rows), policy="ours")[0]
    assert (line.policy, line.instead_of) == ("ours+static", "stock+static, standbys 1")
    assert line.difference_s == pytest.approx(-1.0)
    assert line.calmer == "ours+static"


@pytest.mark.parametrize(
    ("theirs", "calmer", "verdict"),
    [
        (40.0, "stock+static", "keep: stock+static stops less"),
        (60.0, "ours+static", "change"),
        (50.0, "even", "keep: the interval over the scenarios includes zero"),
    ],
)
def test_a_change_is_recommended_only_if_the_interval_excludes_zero(
    theirs: float, calmer: str, verdict: str
) -> None:
    """Differences are paired by scenario; a difference by chance recommends no change."""
    rows = [
        row(number, policy, 1, seconds + 10 * number + (number * 7 % 3) * (policy == "ours+static"))
        for number in range(40)
        for policy, seconds in (("ours+static", 49.0), ("stock+static", theirs))
    ]
    line = recommend(summarise(rows), policy="ours")[0]
    assert (line.calmer, line.verdict) == (calmer, verdict)
    assert line.difference_interval is not None
    low, high = line.difference_interval
    assert low < line.difference_s < high  # type: ignore[operator]
    # the scenarios differ by 39 s per partition, the pairs by less than 1 s
    assert high - low < 0.1


def test_every_figure_of_the_table_has_an_interval_that_holds_it() -> None:
    """The p90 of 100 scenarios lies between the 84th and 96th; of five it may be the largest."""
    rows = [row(number, "ours", 1, float(number)) for number in range(100)]
    line = recommend(summarise(rows), policy="ours")[0]
    low, high = line.intervals["unavailable_s_per_partition_p90"]
    assert (low, high) == (pytest.approx(8.4), pytest.approx(9.6))
    assert set(line.intervals) == {
        "unavailable_s_per_partition_p90",
        "worst_load_p90",
        "cold_moves_p90",
        "moved_p90",
    }
    few = recommend(summarise(rows[:5]), policy="ours")[0]
    assert few.intervals["unavailable_s_per_partition_p90"][1] == 0.4
    one = recommend(summarise([rows[0], row(0, "stock", 1, 1.0)]), policy="ours")[0]
    assert (one.difference_interval, one.calmer) == (None, "even")
    assert one.verdict == "keep: the interval over the scenarios includes zero"
    assert line.verdict == "keep: no other policy was played under the same conditions"


def test_stock_is_played_with_static_members_too_unless_told_otherwise() -> None:
    """The default arms are comparable."""
    labels = {arm.label for arm in arms()}
    assert {"ours+static", "stock+static", "ours", "stock"} <= labels


def test_settings_are_chosen_on_one_part_and_judged_on_another() -> None:
    """The luckiest setting is named with its figures in the judging scenarios."""
    chosen = [row(n, "ours", count, 10.0 + count) for n in range(20) for count in (0, 1)]
    judged = [row(n, "ours", count, 50.0 - count) for n in range(20) for count in (0, 1)]
    line = recommend(summarise(chosen), policy="ours", judged=summarise(judged))[0]
    assert (line.standbys, line.chosen_at) == (0, 1.0)
    assert line.unavailable_s_per_partition_p90 == 5.0
    alone = recommend(summarise(chosen), policy="ours")[0]
    assert (alone.unavailable_s_per_partition_p90, alone.chosen_at) == (1.0, None)


def test_ours_plays_cooperative_rounds_unless_told_otherwise() -> None:
    """Workers use cooperative rounds by default; stock Faust's rounds are eager."""
    found = {arm.label: arm.cooperative for arm in arms(("ours", "ours+eager", "stock"), (1,))}
    assert found == {"ours": True, "ours+eager": False, "stock": False}


def test_each_class_of_fleets_is_judged_by_its_own_figures() -> None:
    """The figures of large fleets do not apply to small fleets."""

    def rows(small: float, large: float) -> list[SimRow]:
        return [
            row(2 * n + k, "ours", 1, stopped, state=state, racks=racks)
            for n in range(5)
            for k, (stopped, state, racks) in enumerate(((small, "small", 1), (large, "large", 3)))
        ]

    judged = summarise(rows(20.0, 40.0))
    lines = recommend(summarise(rows(10.0, 10.0)), policy="ours", judged=judged)
    found = {line.state: line.unavailable_s_per_partition_p90 for line in lines}
    assert found == {"all": 4.0, "small": 2.0, "large": 4.0}

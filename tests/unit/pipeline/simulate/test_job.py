"""The job of ``simulate``: costs, report, rows, and the effect of a change."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.pipeline.ledgers.refusals import Tolerance
from faust_assigner.pipeline.one_writer import FolderInUse, only_writer
from faust_assigner.pipeline.progress import Progress
from faust_assigner.pipeline.simulate import job, output
from faust_assigner.pipeline.simulate import report as report_module
from faust_assigner.pipeline.simulate.facts import Facts
from faust_assigner.pipeline.simulate.measured import RecoveryFact
from faust_assigner.pipeline.simulate.report import LEAST_OF_A_PART
from faust_assigner.pipeline.simulate.request import Request
from faust_assigner.pipeline.simulate.scenarios import Shape
from faust_assigner.pipeline.simulate.what_if import Change
from faust_assigner.simulation.fleet import Costs

REQUEST = Request(24, 5, "out", ("ours", "stock"), (0, 1))


def test_a_given_session_timeout_goes_before_the_recorded_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The session timeout is then not a measured cost; other measured costs stay."""
    decision = {
        "group_id": "g",
        "decision_id": "d",
        "session_timeout_s": 33.0,
        "config": {},
        "members": [],
    }
    recovery = RecoveryFact("g", "d", "m", 2.0, 10_000, True)
    other = RecoveryFact("h", "d", "m", 1.0, 90_000, True)
    facts = Facts((decision, {**decision, "group_id": "h"}), (), (), (recovery, other))
    seen: list[Any] = []
    monkeypatch.setattr(
        job, "week", lambda facts, *, group_id=None: seen.append(group_id) or "week"
    )
    run, measured = job._run(replace(REQUEST, group_id="g"), facts)
    assert (run.costs.session_timeout_s, run.costs.replay_records_per_s) == (33.0, 5_000.0)
    assert (measured, run.source, run.seed) == (
        ("replay_records_per_s", "session_timeout_s"),
        "week",
        5,
    )
    run, measured = job._run(replace(REQUEST, group_id="g", session_timeout_s=12.0), facts)
    assert (run.costs.session_timeout_s, measured) == (12.0, ("replay_records_per_s",))
    assert seen == ["g", "g"]
    run, measured = job._run(replace(REQUEST, session_timeout_s=12.0), None)
    assert (run.costs, measured) == (replace(Costs(), session_timeout_s=12.0), ())
    assert (run.source, len(run.arms)) == (REQUEST.shape, 4)


@pytest.mark.parametrize(
    ("scenarios", "is_judged"), [(2 * LEAST_OF_A_PART, True), (2 * LEAST_OF_A_PART - 1, False)]
)
def test_settings_are_judged_on_other_scenarios_if_there_are_enough(
    monkeypatch: pytest.MonkeyPatch, scenarios: int, is_judged: bool
) -> None:
    """Even scenarios choose and odd ones judge; the policy is the first without switches."""
    asked: list[Any] = []

    def recommend(chosen: Any, *, policy: str, judged: Any = ()) -> list[Any]:
        asked.append((chosen, policy, judged))
        return []

    monkeypatch.setattr(report_module, "recommend", recommend)
    request = replace(REQUEST, scenarios=scenarios, out="out/", policies=("ours+static", "stock"))
    run, _ = job._run(request, None)
    found = report_module.report_of(request, run, ("a",), lambda part: [f"part {part}"], None)  # type: ignore
    wanted = (["part 0"], "ours", ["part 1"]) if is_judged else (["part None"], "ours", ())
    assert asked == [wanted]
    assert (found["sim_summary"], found["events"], found["replay"]) == (["part None"], [], [])
    options = found["options"]
    assert (options["scenarios"], options["seed"]) == (scenarios, 5)
    assert (options["policies"], options["replicas"]) == (["ours+static", "stock"], [0, 1])
    assert options["shape"]["members"] == REQUEST.shape.members
    assert (options["measured_costs"], options["ledgers"]) == (["a"], [])


def test_the_rows_of_a_simulation_replace_the_former_ones(tmp_path: Path) -> None:
    """Other files of the parent folder stay; no former row remains."""
    folder = tmp_path / "sim_result"
    folder.mkdir()
    (folder / "part-00007.parquet").touch()
    (tmp_path / "report.json").touch()
    output.write_rows([], folder)
    assert [path.name for path in folder.iterdir()] == ["part-00000.parquet"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.json", "sim_result"]


def test_a_ledger_is_read_with_the_options_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """The progress counts the lines."""
    asked: list[Any] = []

    def read(ledgers: Any, tolerance: Any, *, properties: Any, refused: Any, now: Any) -> Any:
        assert now == REQUEST.now
        asked.append((ledgers, tolerance, properties, refused, progress.stage))
        return ["row"], refused

    monkeypatch.setattr("faust_assigner.pipeline.ledgers.rows.read_here", read)
    monkeypatch.setattr(job, "facts_of", lambda rows: ("facts", rows))
    progress = Progress("simulate")
    request = replace(REQUEST, ledgers=("l",), max_refused=Tolerance(most=3), properties={"a": "b"})
    assert job._facts_here(request, progress) == ("facts", ["row"])
    assert asked == [(("l",), Tolerance(most=3), {"a": "b"}, progress.lines, "reading the lines")]
    assert job._facts_here(REQUEST, progress) is None


def test_the_effect_of_a_change_is_written_on_request(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each number of standbys has a row; a generated fleet starts with as many."""
    asked: list[Any] = []

    def generated(scenario: Any, replicas: int) -> Any:
        asked.append((scenario.scenario_id, replicas))
        return SimpleNamespace(group_id="g", decision_id="d", members=(1, 2)), "load"

    def what_if(*given: Any, replicas: Any, costs: Any) -> list[int]:
        asked.append((*given[1:], replicas, costs))
        return [1]

    monkeypatch.setattr(job, "generated", generated)
    monkeypatch.setattr(job, "what_if", what_if)
    change = Change(add=1, remove=("a",))
    request = replace(REQUEST, out=f"{tmp_path}/", replicas=(0, 2, 1))
    found = job.what_if_here(request, change)
    assert asked == [
        step for count in (0, 2, 1) for step in ((0, count), (change, "load", (count,), Costs()))
    ]
    assert json.loads((tmp_path / "what_if.json").read_text()) == json.loads(json.dumps(found))
    assert (found["members"], found["change"]["remove"]) == (2, ("a",))
    job.what_if_here(replace(request, out=""), change)


def test_without_standbys_the_tasks_of_a_lost_rack_of_a_generated_fleet_move_cold() -> None:
    """No row counts copies of a fleet with more standbys than its own."""
    request = replace(REQUEST, out="", shape=Shape(members=(6, 6), racks=(3,)), replicas=(0, 1))
    none, one = job.what_if_here(request, Change(lose_rack="rack-1"))["what_if"]
    assert none["cold"] == none["moves"] > 0
    assert one["cold"] == 0 < one["moves"]


def _files(folder: Path) -> dict[str, bytes]:
    return {f"{file}": file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_two_runs_do_not_write_to_one_folder(tmp_path: Path) -> None:
    """A refused run changes no file; else the report would be about the rows of the other run."""
    folder = tmp_path / "out"
    request = Request(1, 5, str(folder), ("ours",), (0,))
    job.simulate_here(request)
    before = _files(folder)
    with only_writer(request.out), pytest.raises(FolderInUse):
        job.simulate_here(replace(request, seed=6))
    assert _files(folder) == before
    job.simulate_here(replace(request, seed=6))
    after = _files(folder)
    assert [file for file in before if after.get(file) == before[file]] == []

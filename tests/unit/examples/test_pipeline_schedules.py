"""The schedules of examples/pipeline: the file is taken, the CronJob is one, the DAG tells failures apart."""

from __future__ import annotations

import runpy
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from faust_assigner.cli import main

HERE = Path(__file__).parents[3] / "examples" / "pipeline"


def test_the_file_is_taken() -> None:
    """Each of its options is one of its command."""
    checked = CliRunner().invoke(
        main, ["pipeline", "run", "--config", str(HERE / "pipeline.toml"), "--check"]
    )
    assert (checked.exit_code, "history, weights, snapshot" in checked.output) == (0, True)


def test_the_cron_job_is_valid_and_runs_the_command() -> None:
    """By Kubernetes' own schema; codes that ask for a person end it."""
    import kubernetes_validate

    document = yaml.safe_load((HERE / "cronjob.yaml").read_text())
    kubernetes_validate.validate(document, "1.31", strict=True)
    pod = document["spec"]["jobTemplate"]["spec"]
    (container,) = pod["template"]["spec"]["containers"]
    assert container["command"][:3] == ["faust-assigner", "pipeline", "run"]
    assert pod["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"] == [1, 2, 3]


class FailedForGoodError(Exception):
    """Stands for Airflow's, which is not tried again."""


@pytest.mark.parametrize(
    ("code", "error"),
    [(0, None), (75, RuntimeError), (1, FailedForGoodError), (3, FailedForGoodError)],
)
def test_the_dag_tries_again_where_that_may_help(
    monkeypatch: pytest.MonkeyPatch, code: int, error: type[Exception] | None
) -> None:
    """75 is tried again, other failures are not. Airflow itself is a stand-in here."""
    asked: list[Any] = []
    decorators, exceptions = types.ModuleType("d"), types.ModuleType("e")
    decorators.dag = lambda **options: asked.append(options) or (lambda f: f)  # type: ignore[attr-defined, func-returns-value]
    decorators.task = lambda **options: asked.append(options) or (lambda f: f)  # type: ignore[attr-defined, func-returns-value]
    exceptions.AirflowFailException = FailedForGoodError  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "airflow.decorators", decorators)
    monkeypatch.setitem(sys.modules, "airflow.exceptions", exceptions)
    monkeypatch.setattr("subprocess.run", lambda *_, **__: types.SimpleNamespace(returncode=code))
    if error is None:
        runpy.run_path(str(HERE / "airflow_dag.py"))
    else:
        with pytest.raises(error):
            runpy.run_path(str(HERE / "airflow_dag.py"))
    assert (asked[0]["catchup"], asked[0]["max_active_runs"], asked[1]["retries"]) == (False, 1, 3)

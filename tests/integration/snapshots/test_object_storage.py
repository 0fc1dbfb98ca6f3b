"""``s3://`` and ``s3a://`` URLs of commands, against a server that speaks S3's protocol."""

from __future__ import annotations

import json
from pathlib import Path

import fsspec
import pandas as pd
import pytest
from click.testing import CliRunner, Result

from faust_assigner.cli import main
from faust_assigner.pipeline.failure import TRY_AGAIN, USAGE, verdict
from faust_assigner.pipeline.session import s3_settings
from tests.integration.spark.ledgers import SAMPLE


def run(*arguments: str) -> Result:
    """Run ``faust-assigner``."""
    return CliRunner().invoke(main, arguments)


@pytest.fixture(params=["s3", pytest.param("s3a", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest, s3_folder: str) -> str:
    """The URL of one folder, with each of its two schemes."""
    return s3_folder.replace("s3://", f"{request.param}://")


def test_weights_and_simulations_are_read_from_and_written_to_a_bucket(url: str) -> None:
    """Without Spark s3fs does all of it; no local folder ``s3:`` appears."""
    store = fsspec.filesystem("s3")
    inside = url.partition("://")[2]
    store.pipe_file(f"{inside}/ledger/w.jsonl", json.dumps(SAMPLE).encode() + b"\n")
    done = run("weights", "--ledger", f"{url}/ledger", "--out", f"{url}/w.json", "--no-spark")
    assert done.exit_code == 0, done.output
    assert json.loads(store.cat_file(f"{inside}/w.json"))["partition_weight"]
    for seed in ("1", "2"):
        done = run(
            "simulate",
            "--scenarios",
            "2",
            "--out",
            f"{url}/sim",
            "--no-spark",
            "--jobs",
            "1",
            "--policies",
            "ours",
            "--replicas",
            "1",
            "--seed",
            seed,
        )
        assert done.exit_code == 0, done.output
    assert json.loads(store.cat_file(f"{inside}/sim/report.json"))["sim_summary"]
    assert len(store.ls(f"{inside}/sim/sim_result")) == 1
    with store.open(store.ls(f"{inside}/sim/sim_result")[0]) as stream:
        assert len(pd.read_parquet(stream)) == 2
    assert not Path(url.partition("/")[0]).exists()


def test_a_storage_that_does_not_answer_is_worth_another_try(
    s3_folder: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The command prints one line and exits with 75."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    fsspec.filesystem("s3").clear_instance_cache()
    done = run(
        "weights",
        "--ledger",
        f"{s3_folder}/ledger",
        "--out",
        str(tmp_path / "w.json"),
        "--no-spark",
    )
    assert done.exit_code == TRY_AGAIN, done.output


def test_hadoop_is_told_what_everybody_else_reads_from_the_environment() -> None:
    """Without these settings S3's client would use Amazon instead of the user's server."""
    assert s3_settings({"AWS_ENDPOINT_URL": "http://s3:9000", "AWS_REGION": "eu-1"}) == {
        "spark.hadoop.fs.s3a.endpoint": "http://s3:9000",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.endpoint.region": "eu-1",
    }
    assert s3_settings({}) == {}


def test_what_spark_lacks_for_a_bucket_is_named() -> None:
    """The error has the package, not a class name."""
    from py4j.protocol import Py4JError

    found = verdict(
        Py4JError(
            "java.lang.ClassNotFoundException: Class "
            "org.apache.hadoop.fs.s3a.S3AFileSystem not found"
        )
    )
    assert found is not None
    assert "org.apache.hadoop:hadoop-aws" in found[0]
    assert found[1] == USAGE

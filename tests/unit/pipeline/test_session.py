"""The settings of a Spark session, without a session; schemas; jars."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.ledger import Column
from faust_assigner.pipeline import jars, session
from faust_assigner.pipeline.schema import columns


def test_days_are_utc_days_on_every_machine() -> None:
    """Timestamps are written in the common Parquet type."""
    assert session.SETTINGS["spark.sql.session.timeZone"] == "UTC"
    assert session.SETTINGS["spark.sql.parquet.outputTimestampType"] == "TIMESTAMP_MICROS"


def test_a_server_of_ones_own_has_no_bucket_in_its_name() -> None:
    """The endpoint and region come from the environment; the S3 endpoint takes precedence."""
    environment = {
        "AWS_ENDPOINT_URL": "http://all",
        "AWS_ENDPOINT_URL_S3": "http://s3",
        "AWS_REGION": "eu",
    }
    assert session.s3_settings(environment) == {
        "spark.hadoop.fs.s3a.endpoint": "http://s3",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.endpoint.region": "eu",
    }
    assert session.s3_settings({}) == {}


def test_a_given_setting_has_priority_over_the_environment_and_the_defaults(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Jar files and packages are added to the settings."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://environment")
    zone, endpoint = "spark.sql.session.timeZone", "spark.hadoop.fs.s3a.endpoint"
    plain = session._settings("local[3]", (), (), {})
    assert (plain[zone], plain[endpoint]) == ("UTC", "http://environment")
    assert plain["spark.sql.shuffle.partitions"] == "3"
    given = {endpoint: "http://given", zone: "Z", "spark.sql.shuffle.partitions": "9"}
    found = session._settings("local[3]", [Path("a.jar"), "b.jar"], ["c:d:1", "e:f:2"], given)
    assert found.items() >= given.items()
    assert (found["spark.jars"], found["spark.jars.packages"]) == ("a.jar,b.jar", "c:d:1,e:f:2")
    assert session._settings("spark://a:1", (), (), {}).keys().isdisjoint(session.LOCAL_SETTINGS)


@pytest.mark.parametrize(("master", "width"), [("local[4]", 4), ("local[4,2]", 4), ("local", 1)])
def test_a_local_session_shuffles_as_wide_as_it_runs(master: str, width: int) -> None:
    """The width of local[N] is N, and of local 1."""
    assert session._local_width(master) == width


def test_jars_of_a_download_that_broke_off_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The jars count only with the mark of a complete download."""
    monkeypatch.setattr(jars, "cache_dir", lambda: tmp_path)
    folder = tmp_path / jars.CACHE_NAME
    folder.mkdir()
    (folder / "kafka-clients-1.jar").touch()
    assert jars.cached_connector_jars() == []
    (folder / ".complete").touch()
    assert [jar.name for jar in jars.cached_connector_jars()] == ["kafka-clients-1.jar"]


def test_a_question_mark_makes_a_column_optional_and_is_no_part_of_its_name() -> None:
    """The example is columns("a int, b? string")."""
    assert columns("a int, b? string") == (Column("a", "int", False), Column("b", "string", True))


class Builder:
    """A session builder that records its calls; ``runs`` is the running session's master."""

    def __init__(self, runs: str) -> None:
        self.calls: list[Any] = []
        self.runs = runs

    def __getattr__(self, name: str) -> Any:
        def call(*given: str) -> Builder:
            self.calls.append((name, *given))
            return self

        return call

    def getOrCreate(self) -> Any:  # noqa: N802 - Spark's
        """Return a session with its settings."""
        self.calls.append("started")
        conf = {"spark.master": self.runs}
        return SimpleNamespace(
            conf=SimpleNamespace(
                get=lambda name, default="": conf.get(name, default),
                set=lambda *given: self.calls.append(("set", *given)),
            ),
            stop=lambda: self.calls.append("stopped"),
        )


def started(monkeypatch: pytest.MonkeyPatch, runs: str) -> Builder:
    """Return the next session's builder, which also records the shipping."""
    builder = Builder(runs)
    monkeypatch.setattr("pyspark.sql.SparkSession.builder", builder)
    monkeypatch.setattr(session, "ship", lambda spark: builder.calls.append("shipped"))
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    return builder


@pytest.mark.parametrize(
    ("master", "runs", "is_shipped", "address"),
    [
        ("local[2]", "local[2]", False, "127.0.0.1"),
        ("yarn", "yarn", True, None),
        (None, "spark://a:1", True, None),
        (None, "local[4]", False, None),
    ],
)
def test_this_package_is_sent_to_the_executors_of_a_cluster_alone(
    monkeypatch: pytest.MonkeyPatch,
    master: str | None,
    runs: str,
    is_shipped: bool,
    address: str | None,
) -> None:
    """Without a master spark-submit's master is used; workers run this interpreter."""
    builder = started(monkeypatch, runs)
    session.spark_session(master, "name", packages=("a:b:1",), settings={"x": "y"})
    calls = builder.calls
    assert calls[0] == ("appName", "name")
    assert (("master", master) in calls) is (master is not None)
    assert {("config", "x", "y"), ("config", "spark.jars.packages", "a:b:1")} <= set(calls)
    assert calls[-1] == ("shipped" if is_shipped else "started")
    assert os.environ["PYSPARK_PYTHON"] == os.environ["PYSPARK_DRIVER_PYTHON"] == sys.executable
    assert os.environ.get("SPARK_LOCAL_IP") == address


def test_the_interpreters_of_the_submitter_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster's workers have their own; the same holds for this machine's address."""
    started(monkeypatch, "local[2]")
    given = {"PYSPARK_PYTHON": "a", "PYSPARK_DRIVER_PYTHON": "b", "SPARK_LOCAL_IP": "127.0.0.2"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    session.spark_session("local[2]")
    assert {name: os.environ[name] for name in given} == given


def test_a_session_of_spark_connect_gets_its_settings_after_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Jars and packages are the server's own."""
    builder = started(monkeypatch, "")
    session.spark_session("sc://h:15002", packages=("a:b:1",))
    settings = [("set", name, value) for name, value in session.SETTINGS.items()]
    assert builder.calls[1:] == [("remote", "sc://h:15002"), "started", *settings, "shipped"]


def test_commands_share_a_held_session_which_ends_after_a_failure_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A command's release does not stop the session; later a new session starts."""
    builder = started(monkeypatch, "local[1]")

    def fails() -> None:
        with session.held_session("local[1]", ["k.jar"], (), {"x": "y"}) as held:
            assert session.spark_session("local[9]", "one") is held
            session.release(held)
            assert "stopped" not in builder.calls
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert builder.calls.count("started") == 1
    assert {("config", "x", "y"), ("config", "spark.jars", "k.jar")} <= set(builder.calls)
    assert builder.calls[-1] == "stopped"
    other = session.spark_session("local[1]")
    assert builder.calls.count("started") == 2
    session.release(other)
    assert builder.calls.count("stopped") == 2


@pytest.mark.parametrize(
    ("conf", "tasks"),
    [
        ({"spark.master": "local[3]"}, 3),
        ({"spark.master": "yarn"}, 2),
        ({"spark.master": "yarn", "spark.executor.instances": "5"}, 5),
        (
            {"spark.master": "yarn", "spark.executor.instances": "5", "spark.executor.cores": "4"},
            20,
        ),
        ({"spark.executor.cores": "4"}, 8),
        ({"spark.executor.instances": ""}, 2),
    ],
)
def test_a_cluster_is_as_wide_as_its_executors_cores(conf: dict[str, str], tasks: int) -> None:
    """Without settings the width is two tasks."""
    spark: Any = SimpleNamespace(conf=SimpleNamespace(get=lambda name, d="": conf.get(name, d)))
    assert session.width(spark) == tasks


def test_a_session_that_is_not_held_is_stopped_beside_a_held_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The caller may have brought a session of its own."""
    stopped: list[str] = []
    mine: Any = SimpleNamespace(stop=lambda: stopped.append("mine"))
    held: Any = SimpleNamespace(stop=lambda: stopped.append("held"))
    monkeypatch.setattr(session, "_held", [held])
    session.release(held)
    assert stopped == []
    session.release(mine)
    assert stopped == ["mine"]


def test_the_region_of_aws_goes_before_the_default_region() -> None:
    """Either counts, and an empty value counts as none."""
    name = "spark.hadoop.fs.s3a.endpoint.region"
    both = {"AWS_REGION": "eu", "AWS_DEFAULT_REGION": "us"}
    assert session.s3_settings(both) == {name: "eu"}
    assert session.s3_settings({**both, "AWS_REGION": ""}) == {name: "us"}
    given = {"AWS_ENDPOINT_URL": "http://all", "AWS_ENDPOINT_URL_S3": ""}
    assert session.s3_settings(given)["spark.hadoop.fs.s3a.endpoint"] == "http://all"

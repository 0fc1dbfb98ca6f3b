"""What a session is started with, said without starting one; schemas; jars."""

from __future__ import annotations

from pathlib import Path

import pytest

from faust_assigner.ledger import Column
from faust_assigner.pipeline import jars, session
from faust_assigner.pipeline.schema import columns


def test_days_are_utc_days_on_every_machine() -> None:
    """And timestamps are written as everybody reads them."""
    assert session.SETTINGS["spark.sql.session.timeZone"] == "UTC"
    assert session.SETTINGS["spark.sql.parquet.outputTimestampType"] == "TIMESTAMP_MICROS"


def test_a_server_of_ones_own_has_no_bucket_in_its_name() -> None:
    """Endpoint and region come from the environment; the one for S3 goes first."""
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
    """Files of jars and packages are added to them."""
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
    """local[N] is N, local is one."""
    assert session._local_width(master) == width


def test_jars_of_a_download_that_broke_off_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They count once the mark is there that all of them are."""
    monkeypatch.setattr(jars, "cache_dir", lambda: tmp_path)
    folder = tmp_path / jars.CACHE_NAME
    folder.mkdir()
    (folder / "kafka-clients-1.jar").touch()
    assert jars.cached_connector_jars() == []
    (folder / ".complete").touch()
    assert [jar.name for jar in jars.cached_connector_jars()] == ["kafka-clients-1.jar"]


def test_a_question_mark_makes_a_column_optional_and_is_no_part_of_its_name() -> None:
    """columns("a int, b? string")."""
    assert columns("a int, b? string") == (Column("a", "int", False), Column("b", "string", True))

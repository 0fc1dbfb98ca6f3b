"""A folder of results and its lock, on disk and behind a URL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from faust_assigner.errors import ConfigError
from faust_assigner.pipeline.failure import FAILED, TRY_AGAIN, USAGE, last_words, verdict
from faust_assigner.pipeline.ledgers.period import Period
from faust_assigner.pipeline.ledgers.refusals import Refused, Tolerance, TooManyRefused
from faust_assigner.pipeline.one_writer import FolderInUse, only_writer
from faust_assigner.pipeline.sinks import Folder
from faust_assigner.pipeline.weights.drift import DriftedTooFar, check, parse_share


@pytest.fixture(params=["disk", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    """An empty folder of results."""
    if request.param == "disk":
        return Folder(str(tmp_path / "out"))
    return Folder(f"memory://folder-{tmp_path.name}-{tmp_path.parent.name}/out/")


def test_files_are_written_read_listed_and_removed(folder: Folder) -> None:
    """A missing folder has no children, and removing a missing file does nothing."""
    assert folder.children() == folder.children("x") == []
    folder.remove("x")
    folder.write("b", b"1")
    folder.write("b", b"2")
    rows = pa.table({"n": [1, 2], "m": ["a", "b"]})
    folder.write_parquet(rows, "day", "rows.parquet")
    assert folder.children() == ["b", "day"]
    assert folder.read("b") == b"2"
    assert folder.read_parquet("day", "rows.parquet").equals(rows)
    assert folder.read_parquet("day", "rows.parquet", only=["m"]).column_names == ["m"]
    assert folder.path("day", "x") == f"{folder.url}/day/x"
    assert not folder.url.endswith("/")
    folder.remove("day")
    assert folder.children() == ["b"]
    assert folder.exists("b")
    assert not folder.exists("day", "rows.parquet")


def test_one_run_at_a_time_writes_to_a_folder(tmp_path: Path) -> None:
    """A second run may write after the first has ended or failed; other folders are free."""
    place = tmp_path / "out"
    place.mkdir()
    with only_writer(str(place)):
        with only_writer(str(tmp_path / "other")):
            pass
        with pytest.raises(FolderInUse, match="another run writes to"):
            _write(place)
    with pytest.raises(ZeroDivisionError):
        _write(place, fails=True)
    _write(place)
    assert place.is_dir(), "a folder from before stays"


def _write(place: Path, *, fails: bool = False) -> None:
    with only_writer(f"file://{place}"):
        if fails:
            raise ZeroDivisionError


def test_a_run_without_output_leaves_no_folder(tmp_path: Path) -> None:
    """A run with output keeps its folder; an object store has no lock."""
    place = tmp_path / "new" / "out"
    with only_writer(str(place)):
        assert place.is_dir()
    assert not place.exists()
    with only_writer(str(place)):
        (place / "report.json").write_text("{}")
    assert [one.name for one in place.iterdir()] == ["report.json"]
    with only_writer("memory://x"), only_writer("memory://x"):
        pass


@pytest.mark.parametrize(
    ("text", "share"), [("100%", 1.0), ("0%", 0.0), ("1", 1.0), ("0.25", 0.25), (" 12.5% ", 0.125)]
)
def test_a_share_is_a_part_of_one_or_of_a_hundred(text: str, share: float) -> None:
    """The largest share is the whole."""
    assert parse_share(text) == share


@pytest.mark.parametrize("text", ["101%", "1.1", "-1", "", "50 %", "half", "nan"])
def test_another_text_is_no_share(text: str) -> None:
    """The error names the option."""
    with pytest.raises(ConfigError, match="--max-drift"):
        parse_share(text)


def test_a_drift_at_the_limit_is_published() -> None:
    """The error names the worst of several groups beyond the limit."""
    check({"a": 0.5, "b": 0.1}, 0.5)
    check({}, 0.0)
    with pytest.raises(DriftedTooFar, match=r"70% of the weight of group 'b'.*limit is 50%"):
        check({"a": 0.6, "b": 0.7}, 0.5)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no reason given"),
        ("first\nsecond", "first"),
        ("x\nValueError: a\n  Caused by: java.b: c\nat d", "Caused by: java.b: c"),
        ("org.apache.SparkException: Job aborted", "org.apache.SparkException: Job aborted"),
    ],
)
def test_the_innermost_cause_of_an_error_of_spark_is_told(text: str, words: str) -> None:
    """Without a cause, the first line is returned."""
    assert last_words(text) == words


def _outside(module: str, text: str, cause: Exception | None = None) -> Exception:
    kind = type("OddError", (Exception,), {"__module__": module})
    error: Exception = kind(text)
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (_outside("botocore.x", "no"), ("OddError: no", FAILED)),
        (_outside("botocore.x", "no", ConnectionRefusedError()), ("OddError: no", TRY_AGAIN)),
        (_outside("botocore_like", "no"), None),
        (_outside("pyspark.x", "ValueError: a"), ("Spark: ValueError: a", FAILED)),
        (
            _outside("py4j.x", "java.net.ConnectException: x"),
            ("Spark: java.net.ConnectException: x", TRY_AGAIN),
        ),
        (PermissionError("x"), ("PermissionError: x", FAILED)),
        (TimeoutError("x"), ("TimeoutError: x", TRY_AGAIN)),
    ],
)
def test_an_error_from_outside_is_permanent_or_temporary(
    error: Exception, found: tuple[str, int] | None
) -> None:
    """The error's name and causes decide; a bug has no verdict."""
    assert verdict(error) == found


def test_a_missing_client_of_s3_is_a_wrong_request() -> None:
    """The message names the package."""
    found = verdict(_outside("py4j.x", "ClassNotFound: S3AFileSystem not found"))
    assert found is not None
    assert found[1] == USAGE
    assert "--packages org.apache.hadoop:hadoop-aws" in found[0]


@pytest.mark.parametrize(
    ("text", "accepted", "refused", "is_refused"),
    [
        (None, 0, 1000, False),
        ("0", 5, 0, False),
        ("0", 5, 1, True),
        ("2", 0, 2, False),
        ("2", 0, 3, True),
        ("50%", 2, 2, False),
        ("50%", 1, 2, True),
        ("100%", 0, 9, False),
    ],
)
def test_as_many_lines_as_allowed_may_be_refused(
    text: str | None, accepted: int, refused: int, is_refused: bool
) -> None:
    """The share is of all lines."""
    found = Refused(accepted=accepted, lines=refused, first="f:1: x" if refused else None)
    tolerance = Tolerance.parse(text)
    if is_refused:
        with pytest.raises(TooManyRefused):
            tolerance.check(found)
    else:
        tolerance.check(found)


@pytest.mark.parametrize("text", ["-1", "101%", "x", "1.5", "%"])
def test_another_text_is_no_tolerance(text: str) -> None:
    """The error names the option."""
    with pytest.raises(ConfigError, match="--max-refused"):
        Tolerance.parse(text)


def test_a_period_without_bounds_holds_everything() -> None:
    """The period is false, so no row is filtered."""
    period: Any = Period()
    assert not period
    rows = [object()]
    assert period.rows(rows) == rows


def test_a_lock_is_on_the_folder_that_readers_and_writers_find(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run without output may remove the folder before the lock; the lock is then retried."""
    import fcntl

    folder = tmp_path / "out"
    flock, calls = fcntl.flock, []

    def removed_first(descriptor: int, operation: int) -> None:
        calls.append(descriptor)
        if len(calls) == 1:
            folder.rename(tmp_path / "kept")
            folder.mkdir()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", removed_first)
    with only_writer(str(folder)):
        assert len(calls) == 2
        with pytest.raises(FolderInUse), only_writer(str(folder)):
            pass
    with only_writer(str(folder)):
        assert len(calls) == 4

"""Relative paths keep their meaning, and small tools meet unusual names, ports, passwords and errors."""

from __future__ import annotations

import importlib
import os
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import pyarrow as pa
import pytest

from faust_assigner.errors import ConfigError
from faust_assigner.ledger import TABLES
from faust_assigner.pipeline import maven, progress, schema, session, shipping
from faust_assigner.pipeline.cluster import (
    _authorities,
    _is_address,
    _jaas_option,
    _login,
    client_properties,
)
from faust_assigner.pipeline.console import show_manifests
from faust_assigner.pipeline.failure import FAILED, TRY_AGAIN, verdict
from faust_assigner.pipeline.kafka_properties import check_names
from faust_assigner.pipeline.one_writer import FolderInUse, only_writer
from faust_assigner.pipeline.schema import is_leader_topic
from faust_assigner.pipeline.sinks import Folder
from faust_assigner.snapshots.manifest import Manifest


def test_a_relative_folder_stays_the_same_folder_in_another_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder and its lock are found by their absolute path."""
    (tmp_path / "in").mkdir()
    monkeypatch.chdir(tmp_path / "in")
    folder = Folder("../out/")
    with only_writer("../out"):
        monkeypatch.chdir(tmp_path)
        assert folder.url == str(tmp_path / "out")
        folder.write("a", b"1")
        with pytest.raises(FolderInUse, match=f"another run writes to {tmp_path}/out;"):
            only_writer("out").__enter__()
    assert (tmp_path / "out" / "a").read_bytes() == b"1"


def test_a_lock_of_a_relative_folder_removes_the_empty_folder_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job may have changed its working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    with only_writer("new"):
        assert (tmp_path / "new").is_dir()
        monkeypatch.chdir(tmp_path / "in")
    assert not (tmp_path / "new").exists()


def test_a_store_is_asked_again_whether_a_file_exists() -> None:
    """Another process may have written it, and a bucket's own root has no double slash."""
    asked: list[Any] = []
    folder = Folder("memory://again")
    folder._root = "/"
    folder._fs = SimpleNamespace(
        invalidate_cache=lambda: asked.append("forget"),
        exists=lambda path: asked.append(path) or len(asked) > 2,
    )
    assert [folder.exists("day", "x") for _ in range(2)] == [False, True]
    assert asked == ["forget", "/day/x", "forget", "/day/x"]


def test_no_columns_of_a_file_can_be_wanted() -> None:
    """An empty choice is not the choice of all columns."""
    folder = Folder(f"memory://columns-{os.getpid()}")
    folder.write_parquet(pa.table({"n": [1, 2], "m": ["a", "b"]}), "rows.parquet")
    assert folder.read_parquet("rows.parquet", only=[]).column_names == []
    assert folder.read_parquet("rows.parquet").column_names == ["n", "m"]
    fsspec.filesystem("memory").rm(folder._at(), recursive=True)


def test_jars_are_complete_before_their_folder_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader between both steps would otherwise take an incomplete folder for a left-over."""
    seen: list[Any] = []

    def publish(fresh: Path, target: Path) -> None:
        seen.append((target, sorted(path.name for path in fresh.iterdir())))

    monkeypatch.setattr(maven, "cache_dir", lambda: tmp_path)
    monkeypatch.setattr(maven, "_publish", publish)
    monkeypatch.setattr(maven.shutil, "which", lambda name: "mvn")
    monkeypatch.setattr(maven.subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=0))
    assert maven.fetch_jars(Path("pom.xml"), "jars") == tmp_path / "jars"
    assert seen == [(tmp_path / "jars", [".complete"])]


def test_the_cache_may_be_below_the_users_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """The setting may have a tilde, as a shell does not replace it inside quotes."""
    monkeypatch.setenv("HOME", "/home/me")
    for given, found in (("~/jars", "/home/me/jars"), ("/x/~y", "/x/~y")):
        monkeypatch.setenv("FAUST_ASSIGNER_CACHE", given)
        assert maven.cache_dir() == Path(found)


def test_the_log_of_a_run_has_the_time_in_utc_at_the_given_interval(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line ends with a Z, so it must not have the local time."""
    waits: list[float] = []

    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            """Return noon in UTC, which is another hour in the local zone."""
            return datetime(2026, 11, 21, 12 if tz is UTC else 7, 30, 9, tzinfo=tz)

    class Event:
        def wait(self, timeout: float) -> bool:
            waits.append(timeout)
            return len(waits) > 1

        def set(self) -> None:
            waits.append(-1.0)

    class Thread:
        def __init__(self, target: Any, **_: Any) -> None:
            self.start = target

        def join(self, timeout: float) -> None:
            waits.append(-timeout)

    monkeypatch.setattr("rich.console.Console.is_terminal", False)
    monkeypatch.setattr(progress, "datetime", Clock)
    monkeypatch.setattr(progress, "threading", SimpleNamespace(Event=Event, Thread=Thread))
    with progress.showing_progress(progress.Progress("job", clock=lambda: 1.0), every_s=12.5):
        pass
    told = capsys.readouterr()
    assert (told.err, told.out) == ("2026-11-21T12:30:09Z job 0 s: starting\n", "")
    assert waits == [12.5, 12.5, -1.0, -5.0]


@pytest.mark.parametrize(
    ("topic", "is_leader"),
    [
        ("shop-__assignor-__leader", True),
        ("__assignor-__leader", True),
        ("shop-__assignor-__leader-changelog", False),
        ("orders", False),
    ],
)
def test_the_leader_topic_of_each_app_ends_with_its_name(topic: str, is_leader: bool) -> None:
    """Its name begins with the app's id."""
    assert is_leader_topic(topic) is is_leader


def test_a_parsed_line_has_the_same_columns_for_spark_and_arrow() -> None:
    """The place comes first, then the reason, then a struct for each table."""
    names = ["file", "chunk", "pos", "line", "reason", *TABLES]
    assert schema.PARSED_ARROW.names == names
    found = schema.parsed_schema()
    assert found.names == names
    assert [field.dataType.simpleString() for field in found][:5] == [
        "string",
        "bigint",
        "bigint",
        "bigint",
        "string",
    ]
    assert [field.dataType.names for field in found.fields[5:]] == [
        [field.name for field in schema.PARSED_ARROW.field(name).type] for name in TABLES
    ]


def test_only_ascii_digits_are_a_port() -> None:
    """Python would read the other digits as numbers, and Kafka's clients would not."""
    assert [
        _is_address(f"a:{port}") for port in ("12", "\uff11\uff12", "\u0663", "0", "65535", "65536")
    ] == [True, False, False, False, True, False]


def test_an_empty_password_in_quotes_is_a_password() -> None:
    """A broker may accept it; a missing password is an error."""
    for quote in ('"', "'"):
        jaas = f"org.example.Login required username={quote}u{quote} password={quote}{quote};"
        given = {"sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}
        assert _jaas_option(jaas, "password") == ""
        assert _login(given) == ("PLAIN", "u", "")


def test_a_folder_is_no_truststore(tmp_path: Path) -> None:
    """The error names the property."""
    given = {"ssl.truststore.location": str(tmp_path), "ssl.truststore.type": "PEM"}
    with pytest.raises(ConfigError, match=r"^ssl\.truststore\.location: there is no file /"):
        _authorities(given)


def test_the_equivalent_of_a_librdkafka_property_goes_before_a_similar_name() -> None:
    """The similar name alone would miss the type of the file."""
    with pytest.raises(ConfigError) as wrong:
        check_names(["acks", "ssl.key.location"], "f")
    assert str(wrong.value) == (
        "f: unknown property 'ssl.key.location'; "
        "did you mean ssl.keystore.location with ssl.keystore.type=PEM?"
    )


def test_a_broken_library_of_an_executor_is_no_missing_module(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The task fails with the library's own error."""

    def load(name: str) -> None:
        raise ImportError("libarrow.so: cannot open")

    class Session:
        def range(self, *_: int) -> Session:
            return self

        def mapInArrow(self, task: Any, schema: str) -> Session:  # noqa: N802 - Spark's
            self.task = task
            return self

        def collect(self) -> Any:
            return list(self.task(iter([None])))

    spark: Any = Session()
    monkeypatch.setattr(importlib, "import_module", load)
    with pytest.raises(ImportError, match="cannot open"):
        shipping._missing(spark)


def test_a_module_that_only_begins_like_the_package_is_not_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The archive has the package alone, so it would not help."""
    monkeypatch.setattr(shipping, "_missing", lambda spark: f"{shipping.PACKAGE}_plugins")
    monkeypatch.setattr(shipping, "_send", lambda *given: pytest.fail("sent"))
    spark: Any = None
    with pytest.raises(shipping.ExecutorsLackPackages, match="no module 'faust_assigner_plugins'"):
        shipping.ship(spark)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("java.net.ConnectException: refused\nCaused by: x.JobAborted: gone", TRY_AGAIN),
        ("java.lang.Error: x\nCaused by: x.JobAborted: gone", FAILED),
    ],
)
def test_each_line_of_an_error_of_spark_may_say_that_a_service_was_silent(
    text: str, code: int
) -> None:
    """The message has the last cause, and the code looks at all of them."""
    error = type("Py4JError", (Exception,), {"__module__": "py4j.protocol"})(text)
    assert verdict(error) == ("Spark: Caused by: x.JobAborted: gone", code)


def test_a_login_without_a_mechanism_is_refused() -> None:
    """Kafka's own default is another mechanism, so none is assumed."""
    with pytest.raises(ConfigError, match=r"sasl\.mechanism must be one of PLAIN, .*, got ''"):
        _login({"sasl.username": "u", "sasl.password": "p"})


def test_of_two_variables_for_one_property_the_last_name_counts() -> None:
    """The order of the environment has no effect."""
    names = ("FAUST_ASSIGNER_KAFKA_CLIENT_ID", "FAUST_ASSIGNER_KAFKA_client_id")
    for order in (names, names[::-1]):
        assert client_properties(None, {name: name[-9:] for name in order}) == {
            "client.id": "client_id"
        }


def test_a_session_inside_a_held_session_is_the_one_that_commands_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each is stopped once, at the end of its own block."""
    stopped: list[str] = []

    def made(name: str) -> Any:
        return SimpleNamespace(stop=lambda: stopped.append(name))

    outer, inner = made("outer"), made("inner")
    real = session.spark_session
    sessions = iter([outer, inner])
    monkeypatch.setattr(session, "spark_session", lambda *given, **named: next(sessions))
    with session.held_session("local[1]", (), (), {}):
        with session.held_session("local[1]", (), (), {}):
            assert real() is inner
            session.release(outer)
        assert (real() is outer, stopped) == (True, ["inner"])
    assert stopped == ["inner", "outer"]


def test_offsets_of_snapshots_are_printed_as_kafkas_tools_print_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Counts and sizes have separators, and offsets and partitions have none."""
    manifest = Manifest(
        topic="log", partition=3_000, snapshot_id="i", next_offset=1_234_567, keys=9_876, bytes=0,
        sha256="x", created_at="t", files=("a",), layers=(1, 1, 1), new_bytes=None,
    )  # fmt: skip
    show_manifests([manifest], "there")
    row = capsys.readouterr().out.splitlines()[2]
    assert row.split() == ["3000", "1234567", "9,876", "0", "0", "3", "i"]

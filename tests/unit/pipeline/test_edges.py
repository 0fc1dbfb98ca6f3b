"""Priorities and clean-ups at the edges of the pipeline: logins, sessions, caches, locks, folders."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.errors import ConfigError
from faust_assigner.pipeline import maven, session
from faust_assigner.pipeline.cluster import _authorities, _login, _ssl_context
from faust_assigner.pipeline.failure import TRY_AGAIN, _lineage, verdict
from faust_assigner.pipeline.one_writer import FolderInUse, only_writer
from faust_assigner.pipeline.sinks import Folder
from faust_assigner.pipeline.snapshots import writer
from faust_assigner.pipeline.snapshots.spans import Job, Span, _damage
from faust_assigner.pipeline.snapshots.writer import SpanWriter
from faust_assigner.snapshots.manifest import SnapshotError

JAAS = """org.example.Login required username="of jaas" password='secret of jaas';"""


@pytest.mark.parametrize(
    ("given", "user", "password"),
    [
        ({}, "of jaas", "secret of jaas"),
        ({"sasl.username": "u"}, "u", "secret of jaas"),
        ({"sasl.password": "p"}, "of jaas", "p"),
        ({"sasl.username": "u", "sasl.password": "p"}, "u", "p"),
    ],
)
def test_a_user_of_its_own_property_goes_before_the_login_configuration(
    given: dict[str, str], user: str, password: str
) -> None:
    """Each of both properties replaces its own part alone."""
    base = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": JAAS}
    assert _login({**base, **given}) == ("SCRAM-SHA-512", user, password)


@pytest.mark.parametrize(
    ("given", "checks"), [(None, True), ("https", True), ("HTTPS", True), ("", False)]
)
def test_only_an_empty_algorithm_switches_the_check_of_host_names_off(
    given: str | None, checks: bool
) -> None:
    """Any other value keeps the check on."""
    name = "ssl.endpoint.identification.algorithm"
    assert _ssl_context({} if given is None else {name: given}).check_hostname is checks


def test_the_type_of_a_truststore_is_read_in_any_case(tmp_path: Path) -> None:
    """Certificates as text have priority over a file; a missing file is named."""
    store = tmp_path / "ca.pem"
    store.write_text("of the file")
    place = {"ssl.truststore.location": str(store), "ssl.truststore.type": "pem"}
    assert _authorities(place) == "of the file"
    assert _authorities({**place, "ssl.truststore.certificates": "as text"}) == "as text"
    assert _authorities({}) is None
    store.unlink()
    with pytest.raises(ConfigError, match="there is no file"):
        _authorities(place)


def test_the_innermost_held_session_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A held session inside another block belongs to the inner block."""
    monkeypatch.setattr(session, "_held", ["outer", "inner"])
    assert session.spark_session("local[3]") == "inner"


@pytest.mark.parametrize(
    ("master", "width"), [("local[0]", 1), ("local[7,2]", 7), ("local", 1), ("local[x]", 1)]
)
def test_a_local_session_has_at_least_one_task(master: str, width: int) -> None:
    """The number of failures after the comma does not count."""
    assert session._local_width(master) == width


@pytest.mark.parametrize("is_complete", [True, False])
def test_the_first_of_two_downloads_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_complete: bool
) -> None:
    """A rename that fails is an error unless the other process has completed the folder."""
    fresh, target = tmp_path / "fresh", tmp_path / "target"
    for folder in (fresh, target):
        folder.mkdir()
        (folder / f"{folder.name}.jar").touch()

    def rename(self: Path, other: Path) -> None:
        assert not other.exists()
        other.mkdir()
        if is_complete:
            (other / ".complete").touch()
        raise OSError("not empty")

    monkeypatch.setattr(Path, "rename", rename)
    if is_complete:
        maven._publish(fresh, target)
        assert not fresh.exists()
    else:
        with pytest.raises(OSError, match="not empty"):
            maven._publish(fresh, target)


def test_a_refused_lock_leaves_no_open_file(tmp_path: Path) -> None:
    """The folder stays locked for its first writer, and is free afterwards."""
    with only_writer(str(tmp_path)):
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            with pytest.raises(FolderInUse), only_writer(str(tmp_path)):
                pass
        assert len(os.listdir("/proc/self/fd")) == before
    with only_writer(str(tmp_path)):
        assert tmp_path.exists()


def test_names_in_a_folder_are_sorted_whatever_the_storage_answers(tmp_path: Path) -> None:
    """An object store may end the name of a folder with a slash."""
    folder = Folder(str(tmp_path))
    (tmp_path / "inside").mkdir()
    folder._fs = SimpleNamespace(ls=lambda path, detail: [f"{path}/c", f"{path}/a/", f"{path}/b"])
    assert folder.children("inside") == ["a", "b", "c"]
    assert folder.children("missing") == []


def test_the_stated_cause_of_an_error_goes_before_its_context() -> None:
    """Without a stated cause the context counts."""
    error = OSError("x")
    error.__context__ = KeyError("y")
    names = [
        "OSError",
        "Exception",
        "BaseException",
        "object",
        "KeyError",
        "LookupError",
        "Exception",
    ]
    assert _lineage(error).split()[:7] == names
    error.__cause__ = TimeoutError("z")
    assert "TimeoutError" in _lineage(error)
    assert "KeyError" not in _lineage(error)
    assert verdict(error) == ("OSError: x", TRY_AGAIN)


@pytest.mark.parametrize("error", [OSError("no space"), SnapshotError("damaged"), None])
def test_a_file_that_cannot_be_read_is_a_damage(error: Exception | None) -> None:
    """The reason is the error's text; the files go to a folder that is removed."""
    seen: list[Any] = []

    def fetch(manifest: Any, folder: Path) -> None:
        seen.append((manifest, folder, folder.is_dir()))
        if error is not None:
            raise error

    catalog: Any = SimpleNamespace(fetch=fetch)
    manifest: Any = "manifest"
    assert _damage(catalog, manifest) == (None if error is None else str(error))
    ((given, folder, existed),) = seen
    assert (given, existed, folder.exists()) == ("manifest", True, False)


def test_a_writer_that_cannot_start_removes_its_scratch_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The files of the previous snapshot cannot be fetched."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    seen: list[Path] = []

    def fail(catalog: Any, base: Any, folder: Path) -> None:
        seen.append(folder)
        raise SnapshotError("gone")

    monkeypatch.setattr(writer, "_on_this_machine", fail)
    base: Any = SimpleNamespace(keys=3)
    span = Span(4, 10, 20, base)
    with pytest.raises(SnapshotError, match="gone") as error:
        SpanWriter(Job("orders", str(tmp_path / "out"), (span,), 5), span)
    assert [folder.parent for folder in seen] == [tmp_path]
    assert (error.tb is not None, list(tmp_path.iterdir())) == (True, [])

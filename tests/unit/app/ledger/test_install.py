"""The ledger of an app: on by default, installed once, off with an invalid setting."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import faust_assigner
from faust_assigner.app.ledger import install as module
from faust_assigner.app.ledger.install import install
from faust_assigner.errors import ConfigError
from faust_assigner.settings import table
from tests.support.faust_group import PartitionAssignor, make_app


class App:
    """An app with these settings."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path | str | None) -> None:
        self.conf = SimpleNamespace(id="shop", version=7)
        self.added: list[Any] = []
        self.sensors = SimpleNamespace(add=self.added.append)
        self.values = {
            table.LEDGER: folder,
            table.LEDGER_FILE_BYTES: 1000,
            table.LEDGER_BYTES: 5000,
            table.LEDGER_SAMPLE_S: 11.0,
            table.DEPLOY: None,
        }
        monkeypatch.setattr(module, "read", self._read)
        self.made: list[Any] = []
        monkeypatch.setattr(
            module, "LedgerFiles", lambda *a, **k: self.made.append((a, k)) or "files"
        )
        monkeypatch.setattr(
            module, "LedgerTopic", lambda *a, **k: self.made.append((a, k)) or "topic"
        )
        monkeypatch.setattr(module, "LedgerSensor", self._sensor)

    def _read(self, app: Any, setting: Any) -> Any:
        if isinstance(value := self.values[setting], Exception):
            raise value
        return value

    def _sensor(self, app: Any, writer: Any, **options: Any) -> Any:
        assert app is self
        return SimpleNamespace(writer=writer, **options)


def test_the_ledger_has_the_files_and_the_pace_of_its_settings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each process has its own files; a second call returns the existing sensor."""
    app = App(monkeypatch, tmp_path)
    sensor: Any = install(app)
    assert app.made == [
        (
            (tmp_path, f"shop-{socket.gethostname()}-{os.getpid()}"),
            {"file_bytes": 1000, "total_bytes": 5000},
        )
    ]
    assert (sensor.writer, sensor.sample_s) == ("files", 11.0)
    assert install(app) is sensor
    assert app.added == [sensor]


def test_a_topic_has_the_bounds_of_the_files_and_the_apps_own_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The key is the process's name; the connection is read when the first row is sent."""
    app = App(monkeypatch, "topic:shop-ledger")
    sensor: Any = install(app)
    assert sensor.writer == "topic"
    [((topic, name, connection), options)] = app.made
    assert (topic, name) == ("shop-ledger", f"shop-{socket.gethostname()}-{os.getpid()}")
    assert options == {"segment_bytes": 1000, "total_bytes": 5000}
    monkeypatch.setattr(module, "connection_of", lambda app: {"bootstrap_servers": app.conf.id})
    assert connection() == {"bootstrap_servers": "shop"}


@pytest.mark.parametrize("deploy", [None, "blue"])
def test_a_decision_names_the_versions_and_the_deploy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, deploy: str | None
) -> None:
    """The deploy is named if it is set."""
    app = App(monkeypatch, tmp_path)
    app.values[table.DEPLOY] = deploy
    sensor: Any = install(app)
    versions = {"faust_assigner": faust_assigner.__version__, "app_version": "7"}
    assert sensor.config == (versions if deploy is None else {**versions, "deploy": deploy})


def test_without_a_folder_there_is_no_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sensor is not added to the app."""
    app = App(monkeypatch, None)
    assert install(app) is None
    assert app.added == []


def test_a_setting_that_cannot_be_used_leaves_the_ledger_off(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The worker starts, and the log names the setting."""
    app = App(monkeypatch, tmp_path)
    app.values[table.LEDGER_BYTES] = ConfigError("LEDGER_BYTES is no number")
    assert install(app) is None
    assert app.added == []
    assert "The ledger stays off: LEDGER_BYTES is no number" in caplog.text


@pytest.mark.parametrize(
    ("said", "folder"),
    [
        (None, "data/ledger"),
        ("", "data/ledger"),
        ("ledger", "ledger"),
        ("/var/ledger", "/var/ledger"),
        ("topic:shop-ledger", "topic:shop-ledger"),
        (" topic:a.b_c-9 ", "topic:a.b_c-9"),
        *((off, None) for off in ("off", "OFF", "0", "no", "false")),
    ],
)
def test_a_ledger_nobody_spoke_of_is_in_the_apps_data(said: str | None, folder: str | None) -> None:
    """A named folder or topic is used; every spelling of a switch turns the ledger off."""
    app = make_app(
        "http://w", assignor=PartitionAssignor, datadir="data", faust_assigner_ledger=said
    )
    is_path = folder is not None and not folder.startswith("topic:")
    assert module.place_of(app) == (Path(str(folder)) if is_path else folder)


@pytest.mark.parametrize(
    "said", ["topic:", "topic:.", "topic:..", "topic:a b", "topic:" + "x" * 250]
)
def test_a_name_that_kafka_does_not_take_leaves_the_ledger_off(
    said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not taken as a folder's name; the log names the setting."""
    app = make_app("http://w", assignor=PartitionAssignor, faust_assigner_ledger=said)
    with pytest.raises(
        ConfigError, match=r"FAUST_ASSIGNER_LEDGER must be a folder, topic:NAME, or"
    ):
        module.place_of(app)
    assert install(app) is None
    assert "The ledger stays off: FAUST_ASSIGNER_LEDGER" in caplog.text

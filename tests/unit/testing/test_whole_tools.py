"""Tools that a signal ends, settings of a test's own, and names that a package has twice."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from faust_assigner.testing import apps, kafka, kafka_security
from tests.support import etcd


@pytest.mark.parametrize("code", [-9, 1, 2])
def test_a_tool_that_does_not_end_well_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """A signal's exit code is below 0; both outputs are in the message."""

    def run(command: Any, **_: Any) -> Any:
        return SimpleNamespace(returncode=code, stdout="said", stderr="failed")

    for module in (etcd, kafka, kafka_security):
        monkeypatch.setattr(module, "subprocess", SimpleNamespace(run=run))
    server = etcd.EtcdServer(tmp_path, 1, 2, tmp_path / "etcd", ())
    (tmp_path / "etcdctl").touch()
    with pytest.raises(etcd.EtcdUnavailable, match=r"^etcdctl \('get', 'k'\): saidfailed$"):
        server.tool("get", "k")
    broker = kafka.KafkaServer("h:1", tmp_path, None, jars=tmp_path)  # type: ignore[arg-type]
    with pytest.raises(kafka.KafkaUnavailable, match=r"^the.Tool \('-x',\): saidfailed$"):
        broker.tool("the.Tool", "-x")
    with pytest.raises(kafka.KafkaUnavailable, match="storage format failed:\nsaidfailed"):
        kafka._format_storage(tmp_path, tmp_path / "config", None)
    with pytest.raises(RuntimeError, match=r"^keytool -list: saidfailed$"):
        kafka_security._keytool("-list")


def test_each_setting_of_a_test_goes_before_the_default_of_its_worker(tmp_path: Path) -> None:
    """Also the folder, the URL and the client's name."""
    plain = apps.settings_of("w3", "h:5", tmp_path, {})
    assert plain == {
        **apps.SETTINGS,
        "broker": "kafka://h:5",
        "broker_consumer": "kafka://h:5",
        "broker_producer": "kafka://h:5",
        "broker_client_id": "w3",
        "canonical_url": "http://w3:6066",
        "datadir": str(tmp_path / "data"),
    }
    own = {name: f"own {name}" for name in plain} | {"more": 7}
    assert apps.settings_of("w3", "h:5", tmp_path, own) == own


def test_an_attribute_that_only_has_the_name_of_a_module_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A package may call its app as its module; only the module itself is taken from it."""
    package, module, other = ModuleType("shop_"), ModuleType("shop_.app"), ModuleType("shop_.more")
    package.app, package.more = "the app", other  # type: ignore[attr-defined]
    for one in (package, module, other):
        monkeypatch.setitem(sys.modules, one.__name__, one)
    assert apps._remove_module("shop_.app") is module
    assert apps._remove_module("shop_.more") is other
    assert package.app == "the app"
    assert not hasattr(package, "more")
    assert "shop_.app" not in sys.modules
    apps._restore_module("shop_.more", other)
    assert (package.more, sys.modules["shop_.more"]) == (other, other)

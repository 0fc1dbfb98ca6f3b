"""The manifest and the image of examples/kubernetes: what they say exists, and would start."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from faust_assigner.service.server.health import LIVES, READY
from faust_assigner.service.server.options import Options
from faust_assigner.settings.service import OPTIONS

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "kubernetes"
MANIFEST = (FOLDER / "assigner.yaml").read_text()
DOCUMENTS: dict[str, Any] = {one["kind"]: one for one in yaml.safe_load_all(MANIFEST)}
POD = DOCUMENTS["Deployment"]["spec"]["template"]["spec"]
CONTAINER = POD["containers"][0]


def test_its_environment_is_options_that_go_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read as the service reads it, with files where the secrets are mounted."""
    said = dict(DOCUMENTS["ConfigMap"]["data"])
    assert said.keys() <= {setting.name for setting in OPTIONS}
    for name, value in said.items():
        if value.startswith("/etc/assigner/"):
            (tmp_path / name).write_text("ops 1\n")
            said[name] = str(tmp_path / name)
    options = Options.read({}, said)
    assert options.settings.strict
    options.authenticator()


def test_its_files_are_mounted() -> None:
    """Every path of the environment lies under a mount, and every mount has its volume."""
    mounts = {one["mountPath"]: one["name"] for one in CONTAINER["volumeMounts"]}
    paths = [
        value for value in DOCUMENTS["ConfigMap"]["data"].values() if value.startswith("/etc/")
    ]
    assert all(any(path.startswith(mount + "/") for mount in mounts) for path in paths)
    assert set(mounts.values()) == {one["name"] for one in POD["volumes"]}


@pytest.mark.parametrize(("probe", "role"), [("readinessProbe", READY), ("livenessProbe", LIVES)])
def test_its_probes_are_kubernetes_own(probe: str, role: str) -> None:
    """On the port without TLS, for a role that the service knows."""
    ports = {one["name"]: one["containerPort"] for one in CONTAINER["ports"]}
    assert CONTAINER[probe]["grpc"] == {"port": ports["health"], "service": role}
    assert DOCUMENTS["ConfigMap"]["data"]["FAUST_ASSIGNER_HEALTH"].endswith(f":{ports['health']}")


def test_its_ports_are_those_it_listens_on() -> None:
    """Of the configuration, the container and the service alike."""
    data = DOCUMENTS["ConfigMap"]["data"]
    ports = {one["name"]: one["containerPort"] for one in CONTAINER["ports"]}
    assert data["FAUST_ASSIGNER_BIND"].endswith(f":{ports['grpc']}")
    assert data["FAUST_ASSIGNER_METRICS"].endswith(f":{ports['metrics']}")
    assert DOCUMENTS["Service"]["spec"]["ports"][0]["port"] == ports["grpc"]
    labels = DOCUMENTS["Deployment"]["spec"]["selector"]["matchLabels"]
    assert DOCUMENTS["Service"]["spec"]["selector"] == labels


def test_its_image_is_ours() -> None:
    """The extra is one of the package's, and what starts is the command."""
    text = (FOLDER / "Dockerfile").read_text()
    assert re.search(r"faust-assigner\[service\]", text)
    assert 'ENTRYPOINT ["faust-assigner"]' in text
    assert CONTAINER["args"] == ["serve"]

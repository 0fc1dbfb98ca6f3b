"""Manifests, unit, container files and Compose file for workers: valid, and fit for the app."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from faust_assigner.app.metrics import probes
from faust_assigner.settings.table import LEAVE_S, SETTINGS

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples"
KUBERNETES = EXAMPLES / "kubernetes"
MANIFESTS = sorted(KUBERNETES.glob("*.yaml"))
CONTAINER_FILES = sorted(KUBERNETES.glob("Dockerfile*"))
PROBES = Path(str(probes.__file__)).read_text()
#: Seconds that a worker needs beside the hand-over: commit, close tables, leave.
SHUTDOWN_S = 30.0


def documents(name: str) -> dict[str, Any]:
    """A manifest's documents by kind."""
    return {one["kind"]: one for one in yaml.safe_load_all((KUBERNETES / name).read_text())}


STATIC, DYNAMIC = documents("workers-static.yaml"), documents("workers-dynamic.yaml")
WORKLOADS = {"static": STATIC["StatefulSet"], "dynamic": DYNAMIC["Deployment"]}


@pytest.fixture(params=WORKLOADS)
def workload(request: pytest.FixtureRequest) -> Any:
    """Each of the two ways to run workers."""
    return WORKLOADS[request.param]


def pod_of(workload: Any) -> Any:
    """The pod's specification."""
    return workload["spec"]["template"]["spec"]


def variables_of(workload: Any) -> dict[str, Any]:
    """The container's environment; a field of the pod by its path."""
    return {
        one["name"]: one.get("value") or one["valueFrom"]["fieldRef"]["fieldPath"]
        for one in pod_of(workload)["containers"][0]["env"]
    }


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.stem)
def test_manifests_are_valid(manifest: Path) -> None:
    """Against Kubernetes' own schema, with unknown fields refused; test_autoscaling.py has KEDA's kinds."""
    import kubernetes_validate

    for document in yaml.safe_load_all(manifest.read_text()):
        if document["apiVersion"].startswith("keda.sh/"):
            continue
        kubernetes_validate.validate(document, "1.31", strict=True)


def test_a_misspelt_field_is_not_valid() -> None:
    """The validation can tell a manifest from one with an error."""
    import kubernetes_validate

    broken = json.loads(json.dumps(STATIC["PodDisruptionBudget"]))
    broken["spec"]["maxUnavailabel"] = broken["spec"].pop("maxUnavailable")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, "1.31", strict=True)


def variables_read() -> set[str]:
    """The variables that the example's app reads."""
    text = (EXAMPLES / "orders" / "app.py").read_text()
    return set(re.findall(r'environ\.get\(\s*"(ORDERS_\w+)"', text))


def test_only_variables_are_set_that_something_reads(workload: Any) -> None:
    """The app's, the package's settings, Faust's canonical URL, and what others refer to."""
    names = variables_of(workload)
    referred = set(re.findall(r"\$\((\w+)\)", " ".join(map(str, names.values()))))
    known = variables_read() | {one.name for one in SETTINGS} | {"NODE_CANONICAL_URL"} | referred
    assert names.keys() <= known


def test_probes_ask_the_pages_of_the_worker(workload: Any) -> None:
    """Readiness asks whether it processes what it owns, the others only whether it lives."""
    container = pod_of(workload)["containers"][0]
    pages = {probe: container[probe]["httpGet"]["path"] for probe in container if "Probe" in probe}
    assert pages == {
        "startupProbe": "/assignor/live",
        "readinessProbe": "/assignor/ready",
        "livenessProbe": "/assignor/live",
    }
    served = {probes.PREFIX + path for path in re.findall(r'"(/(?:live|ready))"', PROBES)}
    assert set(pages.values()) == served
    assert {"name": "web", "containerPort": 6066} in container["ports"]


def test_the_grace_period_is_above_hand_over_and_shutdown(workload: Any) -> None:
    """A worker that is stopped ends by itself before it is killed."""
    leave_s = float(variables_of(workload).get("FAUST_ASSIGNER_LEAVE_S", LEAVE_S.default))
    assert pod_of(workload)["terminationGracePeriodSeconds"] >= leave_s + SHUTDOWN_S


def test_a_static_members_session_outlasts_its_restart() -> None:
    """Else each deploy moves what the instance ids are to keep; a dynamic member has no such id."""
    variables = variables_of(STATIC["StatefulSet"])
    grace_s = pod_of(STATIC["StatefulSet"])["terminationGracePeriodSeconds"]
    assert variables["ORDERS_INSTANCE"] == "metadata.name"
    assert float(variables["ORDERS_SESSION_TIMEOUT_S"]) > grace_s
    assert "ORDERS_INSTANCE" not in variables_of(DYNAMIC["Deployment"])


def test_tables_are_on_a_volume(workload: Any) -> None:
    """The data directory is a mount: of the pod's own claim, or gone with the pod."""
    pod = pod_of(workload)
    [mount] = pod["containers"][0]["volumeMounts"]
    assert variables_of(workload)["ORDERS_DATA"] == mount["mountPath"]
    claims = [one["metadata"]["name"] for one in workload["spec"].get("volumeClaimTemplates", [])]
    assert [mount["name"]] == claims or pod["volumes"][0]["emptyDir"]
    assert pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsUser"]


@pytest.mark.parametrize("manifest", [STATIC, DYNAMIC], ids=["static", "dynamic"])
def test_one_pod_is_evicted_at_a_time(manifest: dict[str, Any]) -> None:
    """The budget selects the workload's pods; the app keeps one standby."""
    budget = manifest["PodDisruptionBudget"]["spec"]
    workload = manifest.get("StatefulSet") or manifest["Deployment"]
    assert budget["maxUnavailable"] == 1
    assert budget["selector"] == workload["spec"]["selector"]
    assert "table_standby_replicas=1" in (EXAMPLES / "orders" / "app.py").read_text()


@pytest.mark.parametrize("file", CONTAINER_FILES, ids=lambda path: path.name)
def test_container_files_are_linted(file: Path) -> None:
    """By hadolint; no container engine is at hand to build them."""
    linter = Path(sys.executable).parent / "hadolint"
    done = subprocess.run([linter, file], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_image_has_what_it_starts() -> None:
    """What is copied exists, the module is the app, and the process is the worker itself."""
    text = (KUBERNETES / "Dockerfile.worker").read_text()
    sources = re.findall(r"^COPY (\S+) ", text, re.MULTILINE)
    assert sources
    assert all((ROOT / source).exists() for source in sources)
    [entry] = re.findall(r"^ENTRYPOINT (\[.*\])$", text, re.MULTILINE)
    assert json.loads(entry) == ["faust", "-A", "examples.orders.measured"]
    assert "faust-assigner[faust,metrics]" in text


UNIT = EXAMPLES / "systemd" / "shop@.service"


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    """``systemd-analyze verify`` finds nothing, but for the program, which is not installed here."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not on PATH")
    text = UNIT.read_text().replace("/opt/shop/.venv/bin/faust", sys.executable)
    (tmp_path / "shop@1.service").write_text(text)
    done = subprocess.run(
        [analyze, "verify", tmp_path / "shop@1.service"], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_unit_gives_a_worker_time_to_stop() -> None:
    """Above hand-over and shutdown; its name is the member's, its files are below the state directory."""
    text = UNIT.read_text()
    [stop_s] = re.findall(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)
    assert float(stop_s) >= float(LEAVE_S.default or 0) + SHUTDOWN_S
    [environment] = re.findall(r"^Environment=(.*)$", text, re.MULTILINE)
    set_here = dict(one.split("=", 1) for one in environment.split())
    assert set_here.keys() <= variables_read()
    [state] = re.findall(r"^StateDirectory=(.*)$", text, re.MULTILINE)
    assert set_here["ORDERS_DATA"] == f"/var/lib/{state}"


COMPOSE_FOLDER = EXAMPLES / "compose"
COMPOSE = yaml.safe_load((COMPOSE_FOLDER / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
WORKERS = [name for name in SERVICES if name.startswith("worker-")]


def test_compose_mounts_and_builds_from_what_exists() -> None:
    """Files of the repository, named volumes that are declared, and services that are there."""
    for service in SERVICES.values():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert source in COMPOSE["volumes"] or (COMPOSE_FOLDER / source).is_file()
        if build := service.get("build"):
            assert (COMPOSE_FOLDER / build["context"] / build["dockerfile"]).is_file()
        assert set(service.get("depends_on", ())) <= SERVICES.keys()
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))


def test_compose_has_three_workers_that_prometheus_asks() -> None:
    """Each has a name and a disk of its own; rules and board are those of the repository."""
    prometheus = yaml.safe_load((COMPOSE_FOLDER / "prometheus.yml").read_text())
    [scrape] = prometheus["scrape_configs"]
    assert scrape["static_configs"][0]["targets"] == [f"{name}:6066" for name in WORKERS]
    for name in WORKERS:
        environment = SERVICES[name]["environment"]
        assert environment["ORDERS_INSTANCE"] == SERVICES[name]["hostname"] == name
        assert environment.keys() <= variables_read()
    assert len({SERVICES[name]["volumes"][0] for name in WORKERS}) == len(WORKERS) == 3
    mounts = [one for name in ("prometheus", "grafana") for one in SERVICES[name]["volumes"]]
    inside = {one.split(":")[1] for one in mounts}
    assert set(prometheus["rule_files"]) <= inside
    [board] = yaml.safe_load((COMPOSE_FOLDER / "grafana" / "boards.yml").read_text())["providers"]
    assert any(path.startswith(board["options"]["path"] + "/") for path in inside)

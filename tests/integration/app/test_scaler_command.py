"""``faust-assigner scaler`` beside two real workers, asked over gRPC as by KEDA and ended by SIGTERM."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner
from grpc_health.v1 import health_pb2, health_pb2_grpc

from faust_assigner.cli import main
from faust_assigner.scaler.proto import externalscaler_pb2 as pb
from faust_assigner.scaler.proto.externalscaler_pb2_grpc import ExternalScalerStub
from faust_assigner.testing.broker import broker_process
from tests.support.waiting import wait_until
from tests.support.workers.load import Load
from tests.support.workers.with_web import Measured

pytestmark = [pytest.mark.processes, pytest.mark.slow]
PARTITIONS = 6


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measured]:
    """Two workers under a load, at rest."""
    folder, app_id = tmp_path_factory.mktemp("scaled"), f"scaled-{time.time_ns()}"
    with ExitStack() as stack:
        broker = stack.enter_context(broker_process())
        made = Measured(app_id, broker.bootstrap, PARTITIONS, folder, session_s=30.0)
        stack.callback(made.stop)
        load = Load(broker.bootstrap, app_id, PARTITIONS, orders_per_s=5.0)
        load.prepare(waiting=5)
        stack.callback(load.stop)
        load.start()
        for name in ("a", "b"):
            made.start(name)
        wait_until(lambda: all(made.status(n, "ready")[0] == 200 for n in "ab"), seconds=150)
        yield made


@pytest.fixture
def served(fleet: Measured) -> Iterator[tuple[str, subprocess.Popen[bytes], Path]]:
    """(address, process, log) of the command."""
    log = fleet.folder / "scaler.log"
    command = [sys.executable, "-m", "faust_assigner", "scaler", "--bind", "127.0.0.1:0"]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*command, "--bootstrap", fleet.bootstrap, "--group", fleet.app_id],
            stdout=out,
            stderr=out,
            env={"PYTHONUNBUFFERED": "1", "PATH": ""},
        )
        try:
            wait_until(lambda: "listens on" in log.read_text(), log.read_text, seconds=90)
            found = re.search(r"listens on (\S+)", log.read_text())
            assert found is not None
            yield found[1], process, log
        finally:
            process.kill()
            process.wait()


def shop(fleet: Measured, **metadata: str) -> pb.ScaledObjectRef:
    """A ScaledObject as KEDA sends it, with KEDA's own keys in the metadata."""
    given = {"scalerAddress": "scaler:6071", "group": fleet.app_id, **metadata}
    return pb.ScaledObjectRef(name="shop", namespace="orders", scalerMetadata=given)


@pytest.mark.timeout(280)
def test_keda_is_told_the_size_that_helps_and_the_service_ends_cleanly(
    fleet: Measured, served: tuple[str, subprocess.Popen[bytes], Path]
) -> None:
    """Size with standbys, min and max; an unknown key is refused; SIGTERM ends the service."""
    address, process, log = served
    with grpc.insecure_channel(address) as channel:
        stub = ExternalScalerStub(channel)

        def size(**metadata: str) -> int:
            asked = pb.GetMetricsRequest(
                scaledObjectRef=shop(fleet, **metadata), metricName="workers"
            )
            [value] = stub.GetMetrics(asked, timeout=30).metricValues
            assert value.metricValueFloat == value.metricValue
            return int(value.metricValue)

        [spec] = stub.GetMetricSpec(shop(fleet), timeout=30).metricSpecs
        assert (spec.metricName, spec.targetSize, spec.targetSizeFloat) == ("workers", 1, 1.0)
        wait_until(lambda: size() == 2 and "(stay" in log.read_text(), log.read_text, seconds=90)
        assert size(min="3") == 3
        assert stub.IsActive(shop(fleet), timeout=30).result
        stream = stub.StreamIsActive(shop(fleet), timeout=60)
        assert next(iter(stream)).result
        with pytest.raises(grpc.RpcError) as refused:
            size(maximum="3")
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "maximum" in refused.value.details()
        checked = health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(service="externalscaler.ExternalScaler"), timeout=30
        )
        assert checked.status == health_pb2.HealthCheckResponse.SERVING
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        with pytest.raises(grpc.RpcError):
            next(stream)


@pytest.mark.timeout(280)
def test_once_prints_the_size_and_why(fleet: Measured) -> None:
    """As text and as JSON; with a silent worker the size is held, and the worker is named."""
    where = ("scaler", "--bootstrap", fleet.bootstrap, "--group", fleet.app_id, "--once")

    def once(*more: str) -> str:
        done = CliRunner().invoke(main, [*where, *more])
        assert done.exit_code == 0, done.output
        return done.stdout

    found: dict[str, object] = {}

    def stays() -> bool:
        found.update(json.loads(once("--json")))
        return found["decision"] == "stay"

    wait_until(stays, lambda: str(found), seconds=90)
    assert (found["size"], found["tasks"], found["useful"]) == (2, PARTITIONS, [2, 3, 6])
    shown = once()
    assert shown.startswith(f"{fleet.app_id}: 2 workers (stay; 2 now)\n"), shown
    assert "sizes that help: 2, 3, 6" in shown
    fleet.workers["b"].process.send_signal(signal.SIGSTOP)
    try:
        held = once("--deadline", "1")
    finally:
        fleet.workers["b"].process.send_signal(signal.SIGCONT)
    assert "2 workers (hold" in held
    assert "does not answer" in held

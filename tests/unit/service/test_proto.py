"""The generated modules match the proto, which keeps the first assigner's numbers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from faust_assigner.service.proto.__main__ import generate

ROOT = Path(__file__).resolve().parents[3]

#: Message -> field -> number, as used by existing consumers.
ORIGINAL = {
    "RegisterRequest": {"consumer_name": 1, "topic": 2},
    "AssignmentCommand": {"assignment": 1, "warm": 2, "release": 3},
    "AssignmentUpdate": {"assigned": 1, "unassigned": 2},
    "WarmPartition": {"partition": 1, "current_owner": 2},
    "ReleasePartition": {"partition": 1, "new_owner": 2},
    "TopicPartition": {"topic": 1, "partition": 2},
    "PartitionReadyRequest": {"consumer_name": 1, "partition": 2},
    "PartitionReleasedRequest": {"consumer_name": 1, "partition": 2},
    "DeregisterRequest": {"consumer_name": 1},
    "DeregisterResponse": {"action": 1},
}


def test_generating_again_gives_the_same_modules(tmp_path: Path) -> None:
    """The modules of all protos are neither edited by hand nor outdated."""
    generate(ROOT, tmp_path)
    made = [path for path in tmp_path.rglob("*_pb2*") if path.is_file()]
    assert len(made) == 8
    for path in made:
        assert (ROOT / path.relative_to(tmp_path)).read_text() == path.read_text()


def test_the_first_assigners_fields_keep_their_numbers() -> None:
    """The service understands clients of the first assigner's proto."""
    messages = pb.DESCRIPTOR.message_types_by_name
    kept = {
        name: {field: messages[name].fields_by_name[field].number for field in fields}
        for name, fields in ORIGINAL.items()
    }
    assert kept == ORIGINAL


def test_the_first_assigners_calls_are_there() -> None:
    """The calls have their original names and package."""
    service = pb.DESCRIPTOR.services_by_name["KafkaAssigner"]
    assert service.full_name == "kafka_assigner.v1.KafkaAssigner"
    assert {"Register", "PartitionReady", "PartitionReleased", "Deregister"} <= set(
        service.methods_by_name
    )
    assert service.methods_by_name["Register"].server_streaming


def test_to_shut_down_at_once_is_zero() -> None:
    """An empty answer reads as SHUTDOWN_NOW."""
    assert dict(pb.DeregisterAction.items()) == {"SHUTDOWN_NOW": 0, "WAIT_FOR_DRAIN": 1}


def test_the_package_needs_no_grpc() -> None:
    """Neither protobuf nor prometheus_client is needed, as both belong to an extra."""
    code = (
        "import sys, faust_assigner, faust_assigner.cli.commands, faust_assigner.service\n"
        "outside = {'grpc', 'google.protobuf', 'prometheus_client'}\n"
        "print(sorted(outside & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"

"""A consumer of the first Kafka Assigner: its proto, a client generated from it, and one life.

python original.py FOLDER HOST:PORT NAME TOPIC     # prints a JSON line for each thing that happens
"""

from __future__ import annotations

import importlib
import json
import sys
import threading
from pathlib import Path
from typing import Any

import grpc

#: The first assigner's names, numbers and types, without later additions.
PROTO = """
syntax = "proto3";
package kafka_assigner.v1;

service KafkaAssigner {
  rpc Register(RegisterRequest) returns (stream AssignmentCommand);
  rpc PartitionReady(PartitionReadyRequest) returns (PartitionReadyResponse);
  rpc PartitionReleased(PartitionReleasedRequest) returns (PartitionReleasedResponse);
  rpc Deregister(DeregisterRequest) returns (DeregisterResponse);
}

message TopicPartition { string topic = 1; uint32 partition = 2; }
message RegisterRequest { string consumer_name = 1; string topic = 2; }
message AssignmentCommand {
  oneof command {
    AssignmentUpdate assignment = 1;
    WarmPartition warm = 2;
    ReleasePartition release = 3;
  }
}
message AssignmentUpdate { repeated TopicPartition assigned = 1; repeated TopicPartition unassigned = 2; }
message WarmPartition { TopicPartition partition = 1; string current_owner = 2; }
message ReleasePartition { TopicPartition partition = 1; string new_owner = 2; }
message PartitionReadyRequest { string consumer_name = 1; TopicPartition partition = 2; }
message PartitionReadyResponse {}
message PartitionReleasedRequest { string consumer_name = 1; TopicPartition partition = 2; }
message PartitionReleasedResponse {}
message DeregisterRequest { string consumer_name = 1; }
enum DeregisterAction { SHUTDOWN_NOW = 0; WAIT_FOR_DRAIN = 1; }
message DeregisterResponse { DeregisterAction action = 1; }
"""


def generate(folder: Path) -> tuple[Any, Any]:
    """Generate the modules with protoc, and import them."""
    from grpc_tools import protoc

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "original.proto").write_text(PROTO)
    assert (
        protoc.main(
            [
                "protoc",
                f"-I{folder}",
                f"--python_out={folder}",
                f"--grpc_python_out={folder}",
                str(folder / "original.proto"),
            ]
        )
        == 0
    )
    sys.path[0] = str(folder)
    return importlib.import_module("original_pb2"), importlib.import_module("original_pb2_grpc")


def say(kind: str, **row: Any) -> None:
    """Print one JSON line."""
    print(json.dumps({"kind": kind, **row}), flush=True)


def live(folder: Path, target: str, name: str, topic: str) -> None:
    """Register, then warm and release on command; when stdin ends, deregister and drain."""
    pb, stubs = generate(folder)
    with grpc.insecure_channel(target) as channel:
        stub = stubs.KafkaAssignerStub(channel)
        stream = stub.Register(pb.RegisterRequest(consumer_name=name, topic=topic))

        def leave() -> None:
            sys.stdin.read()
            action = stub.Deregister(pb.DeregisterRequest(consumer_name=name)).action
            say("deregister", action=pb.DeregisterAction.Name(action))
            if action == pb.SHUTDOWN_NOW:
                stream.cancel()

        threading.Thread(target=leave, daemon=True).start()
        try:
            for command in stream:
                follow(pb, stub, name, command)
        except grpc.RpcError as error:
            say("ended", code=error.code().name)
        else:
            say("ended", code="OK")


def follow(pb: Any, stub: Any, name: str, command: Any) -> None:
    """Execute one command."""
    kind = command.WhichOneof("command")
    if kind == "assignment":
        say(
            "assignment",
            assigned=[p.partition for p in command.assignment.assigned],
            unassigned=[p.partition for p in command.assignment.unassigned],
        )
    elif kind == "warm":
        say("warm", partition=command.warm.partition.partition, owner=command.warm.current_owner)
        stub.PartitionReady(
            pb.PartitionReadyRequest(consumer_name=name, partition=command.warm.partition)
        )
    elif kind == "release":
        say(
            "release",
            partition=command.release.partition.partition,
            owner=command.release.new_owner,
        )
        stub.PartitionReleased(
            pb.PartitionReleasedRequest(consumer_name=name, partition=command.release.partition)
        )
    else:
        say("unknown")


if __name__ == "__main__":
    live(Path(sys.argv[1]), *sys.argv[2:5])

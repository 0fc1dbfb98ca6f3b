"""Generate the modules beside the proto; from the root of the repository."""

from __future__ import annotations

import sys
from pathlib import Path

PROTO = "faust_assigner/service/proto/kafka_assigner.proto"


def generate(root: Path, out: Path) -> None:
    """Write ``kafka_assigner_pb2.py``, its ``.pyi`` and ``kafka_assigner_pb2_grpc.py`` under ``out``."""
    from grpc_tools import protoc

    said = [f"--{kind}_out={out}" for kind in ("python", "pyi", "grpc_python")]
    if code := protoc.main(["protoc", f"-I{root}", *said, PROTO]):
        raise SystemExit(code)


if __name__ == "__main__":
    here = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    generate(here, here)

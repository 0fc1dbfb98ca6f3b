"""Generates the modules beside each proto of the package; run it in the repository's root."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

#: Proto -> the kinds of modules beside it. For etcd, only the messages are generated.
PROTOS: Final[Mapping[str, tuple[str, ...]]] = {
    "faust_assigner/service/proto/kafka_assigner.proto": ("python", "pyi", "grpc_python"),
    "faust_assigner/service/store/etcd_api/etcd.proto": ("python", "pyi"),
    "faust_assigner/scaler/proto/externalscaler.proto": ("python", "pyi", "grpc_python"),
}


def generate(root: Path, out: Path) -> None:
    """Write ``X_pb2.py``, its ``.pyi`` and ``X_pb2_grpc.py`` of each ``X.proto`` under ``out``."""
    for proto, kinds in PROTOS.items():
        said = [f"--{kind}_out={out}" for kind in kinds]
        # Run a separate process: the compiler aborts if another extension has loaded protobuf.
        subprocess.run(
            [sys.executable, "-m", "grpc_tools.protoc", f"-I{root}", *said, proto], check=True
        )


if __name__ == "__main__":
    here = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    generate(here, here)

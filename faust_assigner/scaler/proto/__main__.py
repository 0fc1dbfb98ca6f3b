"""Generate the modules beside the proto; from the root of the repository."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROTO = "faust_assigner/scaler/proto/externalscaler.proto"


def generate(root: Path, out: Path) -> None:
    """Write ``externalscaler_pb2.py``, its ``.pyi`` and ``externalscaler_pb2_grpc.py`` under ``out``."""
    said = [f"--{kind}_out={out}" for kind in ("python", "pyi", "grpc_python")]
    # In a separate process: the compiler aborts if another extension has loaded protobuf.
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", f"-I{root}", *said, PROTO], check=True
    )


if __name__ == "__main__":
    here = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    generate(here, here)

"""Generate the messages from the .proto. This needs grpcio-tools from the dev extra."""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    """Write etcd_pb2.py and .pyi beside the .proto."""
    from grpc_tools import protoc

    proto = Path(__file__).with_name("etcd.proto")
    root = proto.parents[4]
    sys.exit(
        protoc.main(
            ["protoc", f"-I{root}", f"--python_out={root}", f"--pyi_out={root}", str(proto)]
        )
    )


if __name__ == "__main__":
    main()

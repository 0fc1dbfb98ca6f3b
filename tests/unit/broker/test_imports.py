"""The broker's imports: only packages that its users need."""

from __future__ import annotations

import subprocess
import sys

FOREIGN = ("faust", "mode", "aiokafka", "pyspark", "pandas", "pyarrow", "grpc", "click", "rich")


def test_importing_and_starting_the_broker_imports_neither_faust_nor_spark() -> None:
    """The broker imports no client: projects without a client use it in their tests."""
    program = (
        "import sys\n"
        "from faust_assigner.broker import EmbeddedBroker\n"
        "with EmbeddedBroker():\n"
        "    print(*{name.partition('.')[0] for name in sys.modules})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    assert "faust_assigner" in done.stdout.split()
    assert not set(FOREIGN) & set(done.stdout.split())

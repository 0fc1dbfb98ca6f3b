"""The main program of all pipeline jobs, for ``spark-submit`` and ``python -m``:

    spark-submit --master yarn … faust_assigner/cli/jobs.py history --ledger s3://… --out s3://…

The jobs are the commands of ``faust-assigner`` with the same options. ``spark-submit`` sets the
Spark master.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence

import click

from faust_assigner.pipeline.failure import USAGE

JOBS: Mapping[str, str] = {
    "history": "faust_assigner.cli.history",
    "pipeline": "faust_assigner.cli.pipeline",
    "simulate": "faust_assigner.cli.simulate",
    "snapshot": "faust_assigner.cli.snapshot",
    "weights": "faust_assigner.cli.weights",
}


def main(arguments: Sequence[str]) -> int:
    """Run the job named by the first argument; return an exit code of ``pipeline/failure.py``."""
    if not arguments or arguments[0] not in JOBS:
        print(f"usage: jobs.py {{{','.join(JOBS)}}} [options]", file=sys.stderr)
        return USAGE
    name, *options = arguments
    command: click.Command = getattr(importlib.import_module(JOBS[name]), name)
    try:
        # With an empty --master the session uses the master of the spark-submit command.
        command.main(options, prog_name=name, default_map={"master": ""})
    except SystemExit as end:
        return int(end.code or 0)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

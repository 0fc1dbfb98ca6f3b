"""The one main of the pipeline, for ``spark-submit`` and ``python -m``:

    spark-submit --master yarn … faust_assigner/pipeline/jobs.py history --ledger s3a://… --out s3a://…

Each job is a module with ``main(arguments) -> exit code``; only the one asked for is imported.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence

from faust_assigner.pipeline.failure import USAGE, verdict

JOBS: Mapping[str, str] = {
    "history": "faust_assigner.pipeline.history.job",
    "simulate": "faust_assigner.pipeline.simulate.job",
    "snapshot": "faust_assigner.pipeline.snapshots.job",
    "weights": "faust_assigner.pipeline.weights.job",
}


def main(arguments: Sequence[str]) -> int:
    """Run the job that ``arguments`` name first; the exit codes are those of ``failure.py``."""
    if not arguments or arguments[0] not in JOBS:
        print(f"usage: jobs.py {{{','.join(JOBS)}}} [options]", file=sys.stderr)
        return USAGE
    job = importlib.import_module(JOBS[arguments[0]])
    try:
        return int(job.main(arguments[1:]))
    except Exception as error:
        found = verdict(error)
        if found is None:
            raise
        said, code = found
        print(f"{arguments[0]}: {said}", file=sys.stderr)
        return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

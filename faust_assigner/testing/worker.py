"""A worker of a fleet as a process: ``python -m faust_assigner.testing.worker``.

The variables ``KIT_*`` configure the process. It runs the user's app as ``faust worker`` does, with
the test's settings, and writes its rounds to a journal. The process ends when its standard input is
closed, so it never outlives the test's process.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping

from faust_assigner.testing import apps
from faust_assigner.testing.reporting import report


def main() -> None:
    """Run the worker until a signal ends it."""
    journal = os.open(os.environ["KIT_JOURNAL"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def tell(row: Mapping[str, object]) -> None:
        os.write(journal, json.dumps(row).encode() + b"\n")

    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    try:
        with apps.configured(json.loads(os.environ["KIT_SETTINGS"])):
            app = apps.load(os.environ["KIT_APP"])
            app.finalize()
    except Exception as error:
        tell({"kind": "failed", "error": str(error) or repr(error)})
        raise
    report(app, tell)
    sys.argv = ["faust", "worker", "-l", "info", "--without-web"]
    app.main()


def _end_with_parent() -> None:
    while os.read(0, 4096):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()

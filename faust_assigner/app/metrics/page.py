"""Makes docs/reference/metrics.md from the table of figures.

``python -m faust_assigner.app.metrics.page FILE`` writes the page.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from faust_assigner.app.metrics.exporters import described
from faust_assigner.app.metrics.figures import FIGURES, TRIGGERS
from faust_assigner.wire.worker_status import REASONS

HEAD = """\
# Metrics

Made from `faust_assigner/app/metrics/figures.py`:
`python -m faust_assigner.app.metrics.page docs/reference/metrics.md`.
[How to get them, alerts and a board](../how-to/metrics.md).

Every series has the label `app`, the app's id, beside those below. A gauge that has no value is absent.
All other series are there with 0 from the start, with every known value of their labels. The series of a
partition go when the worker gives the partition up. Figures marked *leader only* are known to the member
that decides rounds: add its counters up over all workers; its gauges are absent on the other members.

| metric | kind, unit | labels | meaning |
| --- | --- | --- | --- |
"""


def page() -> str:
    """The page's text."""
    rows = "".join(
        f"| `{f.exported}` | {', '.join(filter(None, (f.kind, f.unit)))} | "
        f"{', '.join(f'`{label}`' for label in f.labels)} | {described(f)} |\n"
        for f in sorted(FIGURES, key=lambda figure: figure.name)
    )
    reasons = "".join(f"| `{reason}` | {why} |\n" for reason, why in REASONS.items())
    triggers = ", ".join(f"`{trigger}`" for trigger in TRIGGERS)
    return (
        f"{HEAD}{rows}\n## Why a partition stands still\n\n"
        f"| `reason` | the partition is not processed because |\n| --- | --- |\n{reasons}"
        f"\n## Why a round was led\n\n`trigger` is one of {triggers}: the first round of a group, members "
        "that came or left, another subscription, other partition counts, none of these, or more than "
        "one.\n"
    )


def main(arguments: Sequence[str]) -> None:
    """Write the page."""
    Path(arguments[0]).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

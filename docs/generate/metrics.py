"""The page docs/reference/metrics.md, from the table of figures."""

from __future__ import annotations

from faust_assigner.app.metrics.exporters import help_text
from faust_assigner.app.metrics.figures import FIGURES, TRIGGERS
from faust_assigner.wire.worker_status import REASONS

HEAD = """\
# Metrics

Generated from `faust_assigner/app/metrics/figures.py`: `python -m docs.generate`.
[How to export the metrics, alerts and a board](../how-to/metrics.md).

Every series has the label `app` with the app's id, in addition to the labels below. A gauge without a value
is absent. All other series exist from the start with the value 0, for every known value of their labels. When
a worker loses a partition, the series of this partition end. Only the group's leader, which decides rounds,
sets a metric marked *leader only*. The leader changes, so add up such a counter over all workers. A
leader-only gauge is absent on the other members.

| metric | kind, unit | labels | meaning |
| --- | --- | --- | --- |
"""


def page() -> str:
    """Return the page's text."""
    rows = "".join(
        f"| `{f.exported}` | {', '.join(filter(None, (f.kind, f.unit)))} | "
        f"{', '.join(f'`{label}`' for label in f.labels)} | {help_text(f)} |\n"
        for f in sorted(FIGURES, key=lambda figure: figure.name)
    )
    reasons = "".join(f"| `{reason}` | {why} |\n" for reason, why in REASONS.items())
    triggers = ", ".join(f"`{trigger}`" for trigger in TRIGGERS)
    return (
        f"{HEAD}{rows}\n## The label `reason`\n\n"
        f"| `reason` | the partition is not processed because |\n| --- | --- |\n{reasons}"
        "\n## The label `trigger`\n\nThe label names the change since the last round. Its values are "
        f"{triggers}: this is the first round of the group, members joined, members left, a "
        "subscription changed, partition counts changed, none of these changes happened, or several "
        "of them happened.\n"
    )

"""docs/reference/settings.md, made from the table: ``python -m faust_assigner.settings.page FILE``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from faust_assigner.settings.schema import Setting
from faust_assigner.settings.table import SETTINGS

HEAD = """\
# Settings

Made from `faust_assigner/settings/table.py`:
`python -m faust_assigner.settings.page docs/reference/settings.md`.

A keyword of `faust.App` goes before the environment, and the environment before the default:
`faust.App(..., faust_assigner_rack="eu-1a")` or `FAUST_ASSIGNER_RACK=eu-1a faust -A shop worker`. Faust's own
`env` and `env_prefix` apply. An empty value counts as none. A value that is wrong is named in the log when it
is read, by a leader in each round, and the default taken, the weights or the ledger staying off; with a wrong
list of workers no request is forwarded. Set what is said of warm-ups and follow-up rounds alike on all
workers: any of them may lead, and the leader's word counts.
The member's name over restarts, and its static membership, is Faust's own `consumer_group_instance_id`.

A variable that begins with `FAUST_ASSIGNER_`, in any letter case, must be a setting of this page, an option
of [the service](service.md) or a variable that Kubernetes sets beside a Service whose name begins with
`faust-assigner`. Any other is an error at start that names the nearest setting, and so is an unknown keyword
of `faust.App` that begins with `faust_assigner_`. With Faust's `env_prefix` the names that have that prefix
are checked as well, and go before the names without it.

The commands that speak to Kafka take its own client properties besides: `--config FILE`, the file that
`FAUST_ASSIGNER_KAFKA_CONFIG` names, and before both `FAUST_ASSIGNER_KAFKA_X_Y` for the property `x.y`
(`FAUST_ASSIGNER_KAFKA_SASL_PASSWORD` for `sasl.password`).

| name | a value is; **by default** | meaning |
| --- | --- | --- |
"""


def page() -> str:
    """The page's text."""
    return HEAD + "".join(f"| {' | '.join(_cells(setting))} |\n" for setting in SETTINGS)


def _cells(setting: Setting[Any]) -> tuple[str, ...]:
    unit = f" ({setting.unit})" if setting.unit not in setting.kind.words else ""
    default = setting.shown or _default(setting.default)
    return (
        f"`{setting.name}`",
        f"{setting.kind.words}{unit}; **{default}**",
        setting.meaning + ("" if setting.is_keyword else "; no keyword of `faust.App`"),
    )


def _default(value: Any) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    return f"{value:g}" if isinstance(value, float) else str(value)


def main(arguments: Sequence[str]) -> None:
    """Write the page."""
    Path(arguments[0]).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

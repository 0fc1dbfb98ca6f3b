"""Generates docs/reference/settings.md: ``python -m faust_assigner.settings.page FILE``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from faust_assigner.settings.schema import Setting
from faust_assigner.settings.table import SETTINGS

HEAD = """\
# Settings

This page is generated from `faust_assigner/settings/table.py`:
`python -m faust_assigner.settings.page docs/reference/settings.md`.

A keyword of `faust.App` has priority over the environment, and the environment over the default:
`faust.App(..., faust_assigner_rack="eu-1a")` or `FAUST_ASSIGNER_RACK=eu-1a faust -A shop worker`. Faust's own
`env` and `env_prefix` apply. An empty value counts as unset. The worker logs a wrong value when it reads the
value (a leader reads in each round) and uses the default. With a wrong value the weights or the ledger stay
off; with a wrong list of workers, no request is forwarded. Set warm-ups and follow-up rounds
alike on all workers: any worker may become the leader, and the leader's values apply.
The member's name over restarts, and its static membership, is Faust's own `consumer_group_instance_id`.

A variable that begins with `FAUST_ASSIGNER_`, in any letter case, must be a setting of this page, an option
of [the service](service.md) or a variable that Kubernetes sets beside a Service whose name begins with
`faust-assigner`. Any other variable is an error at start, which names the nearest setting. The same holds for
an unknown keyword of `faust.App` that begins with `faust_assigner_`. With Faust's `env_prefix`, names with
the prefix are checked as well and have priority over names without the prefix.

The commands that connect to Kafka also accept Kafka's client properties: `--config FILE`, the file in
`FAUST_ASSIGNER_KAFKA_CONFIG`, and, with the highest priority, `FAUST_ASSIGNER_KAFKA_X_Y` for the property
`x.y` (`FAUST_ASSIGNER_KAFKA_SASL_PASSWORD` for `sasl.password`). A misspelled name, and a name
from librdkafka or aiokafka, is an error with the nearest name. Any other name that Kafka does not
define is logged.

| name | a value is; **by default** | meaning |
| --- | --- | --- |
"""


def page() -> str:
    """Return the page's text."""
    return HEAD + "".join(f"| {' | '.join(_cells(setting))} |\n" for setting in SETTINGS)


def _cells(setting: Setting[Any]) -> tuple[str, ...]:
    unit = f" ({setting.unit})" if setting.unit not in setting.kind.words else ""
    default = setting.shown or _default(setting.default)
    return (
        f"`{setting.name}`",
        f"{setting.kind.words}{unit}; **{default}**",
        setting.meaning + ("" if setting.is_keyword else "; not a keyword of `faust.App`"),
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

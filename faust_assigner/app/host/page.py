"""docs/reference/host.md, made from the table: ``python -m faust_assigner.app.host.page FILE``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from faust_assigner.app.host.touches import TOUCHES, VERSIONS, Touch

HEAD = """\
# What of Faust we touch

Made from `faust_assigner/app/host/touches.py`:
`python -m faust_assigner.app.host.page docs/reference/host.md`.

Faust has no hooks for what the app's parts do, so these use {count} names of Faust, mode and aiokafka that
are private, or public and not described. Written for {versions}.

Before anything is installed in an app, the versions and every name below are checked. Where one does not
fit, the app does not start: `HostMismatch` names what was expected, what was found and what to do. With
`FAUST_ASSIGNER_REPAIRS=0` it starts without the repairs, and without each other part that does not fit,
which is said. `python -m faust_assigner.app.host.check` checks without an app; `make host-newest` does with
the newest releases, and runs the app's unit tests on them.

A shape is a signature (`=` where there is a default), a property, an attribute of the class, or the method
that sets it. Parts: `repairs` nothing lost or repeated at a rebalance, `restore` snapshots and batched
replay, `driver_assignor` the driver asks the app's assignor, `router`, `reads` requests for
keys, `weights`, `ledger`, `metrics`; `cooperative`
rounds in which kept partitions flow, eager ones where a row of theirs does not fit; `assignor` is needed by
every app, `stock` by comparisons only. The test is the one that goes red when the name comes to mean
something else.
"""
COLUMNS = "\n| name | shape | part | why | test |\n| --- | --- | --- | --- | --- |\n"


def page() -> str:
    """The page's text."""
    versions = ", ".join(
        f"{name} {first} up to, not including, {beyond}"
        for name, (first, beyond) in VERSIONS.items()
    )
    text = HEAD.format(count=len(TOUCHES), versions=versions)
    owners = list(
        dict.fromkeys(touch.owner for touch in TOUCHES)
    )  # in the order of their first rows
    rows = sorted(TOUCHES, key=lambda touch: owners.index(touch.owner))
    for owner, touches in groupby(rows, key=lambda touch: touch.owner):
        text += f"\n## `{owner}`\n{COLUMNS}" + "".join(map(_row, touches))
    return text


def _row(touch: Touch) -> str:
    file, _, test = touch.test.partition("::")
    return (
        f"| `{touch.name}` | `{touch.shape}` | {', '.join(touch.parts)} | {touch.why} | "
        f"`{file.rpartition('/')[2]}` `{test}` |\n"
    )


def main(arguments: Sequence[str]) -> None:
    """Write the page."""
    Path(arguments[0]).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

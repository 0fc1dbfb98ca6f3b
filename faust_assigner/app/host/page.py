"""Writes docs/reference/host.md from the table: ``python -m faust_assigner.app.host.page FILE``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from faust_assigner.app.host.private_apis import PRIVATE_APIS, VERSIONS, PrivateApi

HEAD = """\
# What of Faust we api

Made from `faust_assigner/app/host/private_apis.py`:
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
    """Return the page's text."""
    versions = ", ".join(
        f"{name} {first} up to, not including, {beyond}"
        for name, (first, beyond) in VERSIONS.items()
    )
    text = HEAD.format(count=len(PRIVATE_APIS), versions=versions)
    owners = list(
        dict.fromkeys(api.owner for api in PRIVATE_APIS)
    )  # in the order of their first rows
    rows = sorted(PRIVATE_APIS, key=lambda api: owners.index(api.owner))
    for owner, apis in groupby(rows, key=lambda api: api.owner):
        text += f"\n## `{owner}`\n{COLUMNS}" + "".join(map(_row, apis))
    return text


def _row(api: PrivateApi) -> str:
    file, _, test = api.test.partition("::")
    return (
        f"| `{api.name}` | `{api.shape}` | {', '.join(api.parts)} | {api.why} | "
        f"`{file.rpartition('/')[2]}` `{test}` |\n"
    )


def main(arguments: Sequence[str]) -> None:
    """Write the page."""
    Path(arguments[0]).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

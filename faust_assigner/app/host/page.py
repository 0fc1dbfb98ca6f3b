"""The generator of docs/reference/host.md: ``python -m faust_assigner.app.host.page FILE``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from faust_assigner.app.host.private_apis import PRIVATE_APIS, VERSIONS, PrivateApi

HEAD = """\
# Private names of Faust in use

Generated from `faust_assigner/app/host/private_apis.toml`:
`python -m faust_assigner.app.host.page docs/reference/host.md`.

Faust has no extension points for the parts of an app that this package replaces. The parts therefore use
{count} names of Faust, mode and aiokafka that are private or undocumented. A public name that the host's own
reference documents is not listed; unit tests compare methods of ours that override one with the
host's. Written for {versions}.

Before the fixup installs a part in an app, it checks the versions and every name below. If a name does not
fit, the app does not start: `HostMismatch` names the expected shape, the found shape and the fix. With
`FAUST_ASSIGNER_REPAIRS=0` the app starts without the repairs and without any other part that does not fit,
and logs which parts are missing. `python -m faust_assigner.app.host.check` checks without an app.
`make host-newest` checks the newest releases and runs the app's unit tests on them.

A shape is a signature (`=` marks a default), a property, a class attribute, or the method that sets the
name. The parts are:

- `assignor`: every app needs it.
- `repairs`: no record is lost or repeated at a rebalance, and retained partitions continue during it.
- `driver_assignor`: the driver asks the app's assignor.
- `router`, `reads`: requests for keys.
- `weights`, `ledger`, `metrics`: the parts of these names.
- `stock`: comparisons with stock Faust only.

The test fails if the meaning of the name changes.
"""
COLUMNS = "\n| name | shape | part | why | test |\n| --- | --- | --- | --- | --- |\n"


def page() -> str:
    """Return the page's Markdown text."""
    versions = ", ".join(
        f"{name} {first} up to, not including, {beyond}"
        for name, (first, beyond) in VERSIONS.items()
    )
    text = HEAD.format(count=len(PRIVATE_APIS), versions=versions)
    for owner, apis in groupby(PRIVATE_APIS, key=lambda api: api.owner):
        text += f"\n## `{owner}`\n{COLUMNS}" + "".join(map(_row, apis))
    return text


def _row(api: PrivateApi) -> str:
    file, _, test = api.test.partition("::")
    return (
        f"| `{api.name}` | `{api.shape}` | {', '.join(api.parts)} | {api.why} | "
        f"`{file.rpartition('/')[2]}` `{test}` |\n"
    )


def main(arguments: Sequence[str]) -> None:
    """Write the page to the file that the first argument names."""
    Path(arguments[0]).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

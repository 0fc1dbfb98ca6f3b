"""The page docs/reference/host.md, from the table of private names."""

from __future__ import annotations

from itertools import groupby

from faust_assigner.app.host.private_apis import PRIVATE_APIS, VERSIONS, PrivateApi

HEAD = """\
# Private names of Faust in use

Generated from `faust_assigner/app/host/private_apis.toml`: `python -m docs.generate`.

Faust has no extension points for the parts of an app that this package replaces. The parts therefore use
{count} names of Faust, mode and aiokafka that are private or undocumented. This page does not list
public names that the reference of Faust, mode or aiokafka documents. For methods that override a public
method, unit tests compare the two signatures. The names are those of {versions}.

Before the fixup installs a part in an app, it checks the versions and every name below. If a name
differs from the list, the app does not start: `HostMismatch` names the expected shape, the found shape
and the fix. With `FAUST_ASSIGNER_REPAIRS=0` the app starts without the repairs and without each part
that needs a different name, and logs the missing parts. `python -m faust_assigner.app.host.check` makes
the same check without an app. `make host-newest` checks the newest releases and runs the app's unit
tests on them.

The column *shape* contains a signature (`=` marks a default), `property`, `class attribute`, or the
method that sets the name. The column *part* lists the parts of an app that use the name:

- `assignor`: the assignor itself; every app has it.
- `repairs`: the repairs of Faust's rebalance. With them no record is lost or repeated at a rebalance, and
  retained partitions continue during it.
- `driver_assignor`: the Kafka driver calls the app's assignor.
- `router`, `reads`: requests for keys.
- `follow_up`: requests for follow-up rounds.
- `positions`: the offsets that a member reports for its tables.
- `page`: the status page in a worker.
- `weights`, `ledger`, `metrics`: the parts of these names.
- `stock`: only the comparison with Faust's own assignor ("stock").

The column *use* begins with *overridden* if a subclass of this package overrides the method, with
*replaced* if this package puts its own object in the place of the name, and with *wrapped* if the
replacement calls the original. The test in the last column fails if the meaning of the name changes.
"""
COLUMNS = "\n| name | shape | part | use | test |\n| --- | --- | --- | --- | --- |\n"


def page() -> str:
    """Return the page's Markdown text."""
    versions = ", ".join(
        f"{name} {first} up to, not including, {beyond}"
        for name, (first, beyond) in VERSIONS.items()
    )
    text = HEAD.format(count=len(PRIVATE_APIS), versions=versions)
    for owner, apis in groupby(PRIVATE_APIS, key=lambda api: api.owner):
        text += f"\n## `{owner}`\n{COLUMNS}" + "".join(map(_name_row, apis))
    return text


def _name_row(api: PrivateApi) -> str:
    file, _, test = api.test.partition("::")
    return (
        f"| `{api.name}` | `{api.shape}` | {', '.join(api.parts)} | {api.why} | "
        f"`{file.rpartition('/')[2]}` `{test}` |\n"
    )

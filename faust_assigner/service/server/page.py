"""The table of options in docs/reference/service.md.

Run ``python -m faust_assigner.service.server.page FILE`` to renew the table.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from faust_assigner.service.server.table import OPTIONS, flag, shown

HEAD = "| flag | environment | default | unit | meaning |\n| --- | --- | --- | --- | --- |\n"
_TABLE = re.compile(re.escape(HEAD) + r"(\|.*\n)*")


def table() -> str:
    """Return the table."""
    return HEAD + "".join(
        f"| `{flag(one)}` | `{one.name}` | {shown(one)} | {one.unit} | {one.meaning} |\n"
        for one in OPTIONS
    )


def renewed(page: str) -> str:
    """Return the page with the current table."""
    return _TABLE.sub(lambda _: table(), page)


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(renewed(path.read_text()))

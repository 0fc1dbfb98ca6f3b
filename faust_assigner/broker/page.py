"""The tables of docs/reference/broker.md: ``python -m faust_assigner.broker.page FILE`` renews them."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

from faust_assigner.broker.api import APIS
from faust_assigner.broker.settings import SETTINGS
from faust_assigner.settings import page

_APIS: Final = "| API | key | versions |\n| --- | --- | --- |\n"
_TABLE: Final = re.compile(re.escape(_APIS) + r"(\|.*\n)*")


def renewed(text: str) -> str:
    """Return the page with new tables of settings and APIs."""
    text = page.renewed(text, SETTINGS.values(), lambda setting: f"`{setting.name}`")
    rows = "".join(f"| {one.name} | {one.key} | {one.low}-{one.high} |\n" for one in APIS.values())
    return _TABLE.sub(lambda _: _APIS + rows, text)


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(renewed(path.read_text()))

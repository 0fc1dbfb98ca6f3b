"""Generates the tables of settings in docs/reference/settings.md and docs/reference/service.md.

``python -m faust_assigner.settings.page FILE...`` replaces the tables in these pages.
:mod:`faust_assigner.broker.page` generates the table of the broker's settings.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from faust_assigner.settings.schema import Setting
from faust_assigner.settings.service import OPTIONS, flag
from faust_assigner.settings.table import SETTINGS

HEAD: Final = "| name | allowed values; **default** | meaning |\n| --- | --- | --- |\n"
_TABLE: Final = re.compile(re.escape(HEAD) + r"(\|.*\n)*")


def renewed(
    page: str, settings: Iterable[Setting[Any]], name: Callable[[Setting[object]], str]
) -> str:
    """Return the page with a new table; ``name`` returns a setting's name for the table."""
    rows = "".join(f"| {name(one)} | {_value(one)} | {_meaning(one)} |\n" for one in settings)
    return _TABLE.sub(lambda _: HEAD + rows, page)


def _value(setting: Setting[object]) -> str:
    unit = f" ({setting.unit})" if setting.unit else ""
    return f"{setting.kind.words}{unit}; **{setting.default_text}**"


def _meaning(setting: Setting[object]) -> str:
    of_the_environment = setting in SETTINGS and not setting.is_keyword
    return setting.meaning + ("; not a keyword of `faust.App`" if of_the_environment else "")


def _name_cell(setting: Setting[object]) -> str:
    return f"`{setting.name}`"


def _flag_and_name(setting: Setting[object]) -> str:
    return f"`{flag(setting)}` `{setting.name}`"


def main(arguments: Sequence[str]) -> None:
    """Replace the table in each of the pages."""
    for path in map(Path, arguments):
        settings, name = TABLES[path.name]
        path.write_text(renewed(path.read_text(), settings, name))


#: For each page: its settings, and the function that returns a setting's name for the table.
TABLES: Final = {"settings.md": (SETTINGS, _name_cell), "service.md": (OPTIONS, _flag_and_name)}

if __name__ == "__main__":
    main(sys.argv[1:])

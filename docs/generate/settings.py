"""The tables of settings in docs/reference/, and of the broker's APIs; their pages have more text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from faust_assigner.broker.api import APIS
from faust_assigner.broker.settings import SETTINGS as BROKER_SETTINGS
from faust_assigner.settings.schema import Setting
from faust_assigner.settings.service import OPTIONS, flag
from faust_assigner.settings.table import SETTINGS

HEAD: Final = "| name | allowed values; **default** | meaning |\n| --- | --- | --- |\n"
_TABLE: Final = re.compile(re.escape(HEAD) + r"(\|.*\n)*")
_APIS: Final = "| API | key | versions |\n| --- | --- | --- |\n"
_TABLE_OF_APIS: Final = re.compile(re.escape(_APIS) + r"(\|.*\n)*")


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


def settings_page(page: str) -> str:
    """Return the page of the app's settings with a new table."""
    return renewed(page, SETTINGS, name_cell)


def service_page(page: str) -> str:
    """Return the page of the service's options with a new table."""
    return renewed(page, OPTIONS, lambda one: f"`{flag(one)}` `{one.name}`")


def broker_page(page: str) -> str:
    """Return the broker's page with new tables of settings and APIs."""
    page = renewed(page, BROKER_SETTINGS.values(), name_cell)
    rows = "".join(f"| {one.name} | {one.key} | {one.low}-{one.high} |\n" for one in APIS.values())
    return _TABLE_OF_APIS.sub(lambda _: _APIS + rows, page)


def name_cell(setting: Setting[object]) -> str:
    """Return a setting's name for the table."""
    return f"`{setting.name}`"

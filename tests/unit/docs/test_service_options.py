"""The options that the service's pages name."""

from __future__ import annotations

import re
from typing import Final

import pytest

from faust_assigner.cli.service import service
from faust_assigner.settings.service import OPTIONS, flag
from tests.support.named import ROOT

#: Options of etcd.
FOREIGN: Final = {"--auto-compaction-retention"}


@pytest.mark.parametrize("page", ["how-to/service", "explanation/service", "reference/service"])
def test_every_option_on_a_page_exists(page: str) -> None:
    """An operator gave an etcd user rights to the keys under an option that does not exist."""
    options = {
        name for command in service.commands.values() for p in command.params for name in p.opts
    }
    options |= {flag(setting) for setting in OPTIONS} | {"--no-strict"} | FOREIGN
    said = re.findall(r"`(--[a-z-]+)", (ROOT / f"docs/{page}.md").read_text())
    assert said
    assert sorted(set(said) - options) == []

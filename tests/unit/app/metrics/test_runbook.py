"""Each alert names its section of the runbook, and this section has steps."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

DOCS = Path(__file__).resolve().parents[4] / "docs"
(GROUP,) = yaml.safe_load((DOCS / "operations/alerts.yml").read_text())["groups"]
RULES = {rule["alert"]: rule for rule in GROUP["rules"]}
PAGE = (DOCS / "how-to/runbook.md").read_text()
SECTIONS = dict(
    re.findall(r"^## (FaustAssigner\w+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
)


@pytest.mark.parametrize("alert", RULES)
def test_each_alert_names_its_section(alert: str) -> None:
    """The section describes the fault first and then lists numbered steps."""
    page, _, anchor = RULES[alert]["annotations"]["runbook"].partition("#")
    assert (DOCS.parent / page).read_text() == PAGE
    assert anchor == alert.lower()
    text = SECTIONS[alert]
    assert re.search(r"^1\. ", text, re.MULTILINE)
    assert not text.strip().startswith("1.")


def test_the_runbook_has_no_section_without_an_alert() -> None:
    """The table of symptoms lists each section once."""
    assert SECTIONS.keys() == RULES.keys()
    table = re.findall(r"^\| .* \| \[(\w+)\]\(#(\w+)\) \|$", PAGE, re.MULTILINE)
    assert [name for name, _ in table] == list(RULES)
    assert all(anchor == name.lower() for name, anchor in table)

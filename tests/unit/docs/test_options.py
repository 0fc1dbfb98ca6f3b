"""Every option of a command is on a page."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click

from faust_assigner.cli import main
from tests.support.named import ROOT


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from _options(found, click.Context(found, parent=context))
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            yield max(parameter.opts, key=len)


def test_every_option_is_on_a_page() -> None:
    """`-A` is the form of Faust, and every program has `--version`."""
    pages = (page.read_text() for page in (ROOT / "docs").rglob("*.md"))
    named = set(re.findall(r"--[a-z-]+", " ".join(pages))) | {"--app", "--version"}
    options = set(_options(main, click.Context(main)))
    assert len(options) > 80
    assert sorted(options - named) == []

"""The output of commands: a terminal with its own width, or a pipe with a fixed width."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console

#: The width of tables in a pipe, in columns.
WIDTH = 200


def console(width: int = WIDTH) -> Console:
    """Return rich's console on stdout; ``width`` applies to a pipe, unless COLUMNS is set.

    It prints texts as they are: members choose their names, and brackets in a name are no markup.
    """
    from rich.console import Console

    is_terminal = click.get_text_stream("stdout").isatty()
    chosen = None if is_terminal or "COLUMNS" in os.environ else width
    return Console(width=chosen, highlight=False, emoji=False, markup=False)

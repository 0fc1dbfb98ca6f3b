"""Where commands print: a terminal as it is, else so many columns."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console

#: Columns of a pipe, for tables.
WIDTH = 200


def console(width: int = WIDTH) -> Console:
    """Rich's console on stdout; ``width`` is that of a pipe, unless COLUMNS says another."""
    from rich.console import Console

    is_terminal = click.get_text_stream("stdout").isatty()
    chosen = None if is_terminal or "COLUMNS" in os.environ else width
    return Console(width=chosen, highlight=False, emoji=False)

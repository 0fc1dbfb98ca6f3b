"""The console for the output of commands, on a terminal or in a pipe."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console

#: The width of tables in a pipe, in columns.
WIDTH = 200


def console(width: int = WIDTH) -> Console:
    """Return rich's console on stdout; in a pipe it has ``width`` columns, unless COLUMNS is set.

    Rich's markup is off, because members choose their names, which may contain brackets.
    """
    from rich.console import Console

    is_terminal = click.get_text_stream("stdout").isatty()
    chosen = None if is_terminal or "COLUMNS" in os.environ else width
    return Console(width=chosen, highlight=False, emoji=False, markup=False)

"""The ``faust-assigner`` command: parse, call, print. Nothing imports this package."""

from faust_assigner.cli.commands import main

__all__ = ["main"]

"""The ``faust-assigner`` command, which parses options and prints results. No module imports it."""

from faust_assigner.cli.commands import main

__all__ = ["main"]

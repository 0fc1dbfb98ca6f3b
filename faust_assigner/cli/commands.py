"""The ``faust-assigner`` command: each subcommand is loaded when it is asked for."""

from __future__ import annotations

import importlib
import os
from typing import Any

import click

from faust_assigner import __version__
from faust_assigner.cli.failure import spoken_errors
from faust_assigner.settings.known import check_environment

#: Command -> the module of this package that defines it under the command's name.
COMMANDS = {
    name: name.replace("-", "_")
    for name in (
        "broker",
        "deploy-check",
        "doctor",
        "groups",
        "history",
        "scaler",
        "serve",
        "service",
        "simulate",
        "snapshot",
        "spark",
        "status",
        "ui",
        "weights",
        "why",
    )
}
#: Operators' commands of the assigner service, whose names were those of ``faust-assigner`` itself.
MOVED = frozenset({"assignments", "consumers", "drain", "handoffs", "health", "plan"})


class _Lazy(click.Group):
    """Imports a command's module at its first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, without importing anything."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, or None for a name that is none."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"faust_assigner.cli.{COMMANDS[cmd_name]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run it; a package that is missing may be so for its options already.

        Raises SystemExit with 2 where the environment has a misspelled setting.
        """
        with spoken_errors():
            return super().invoke(ctx)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command; the doctor itself reports misspelled settings, together with all else.

        Raises UsageError, which names the new spelling, for a command that has moved.
        """
        if args and args[0] in MOVED:
            ctx.fail(f"'{args[0]}' is a command of the service: faust-assigner service {args[0]}")
        found = super().resolve_command(ctx, args)
        if found[0] != "doctor":
            check_environment(os.environ)
        return found


@click.group(
    cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="faust-assigner")
def main() -> None:
    """Partition assignment: a broker, a service, groups, history, weights, snapshots, simulation."""

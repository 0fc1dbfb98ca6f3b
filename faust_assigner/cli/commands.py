"""The ``faust-assigner`` command, which imports each subcommand's module at its first use."""

from __future__ import annotations

import importlib
import os
from typing import Any

import click

from faust_assigner import __version__
from faust_assigner.cli.failure import reported_errors
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
        "pipeline",
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
#: Commands that earlier releases had at the top level and that are now below ``faust-assigner service``.
MOVED = frozenset({"assignments", "consumers", "drain", "handoffs", "health", "plan"})


class _LazyGroup(click.Group):
    """Imports a command's module at its first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, without importing their modules."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command, or None for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"faust_assigner.cli.{COMMANDS[cmd_name]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, and report its errors, which may occur as early as the parsing of options.

        Raises SystemExit with 2 if the environment has a misspelled setting.
        """
        with reported_errors():
            return super().invoke(ctx)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve the command, and check the environment for misspelled settings.

        The ``doctor`` command reports such settings itself, with its other findings. Raises UsageError
        with the new spelling for a renamed command.
        """
        if args and args[0] in MOVED:
            ctx.fail(f"'{args[0]}' is a command of the service: faust-assigner service {args[0]}")
        found = super().resolve_command(ctx, args)
        if found[0] != "doctor":
            check_environment(os.environ)
        return found


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="faust-assigner")
def main() -> None:
    """Partition assignment: a broker, a service, groups, history, weights, snapshots, simulation."""

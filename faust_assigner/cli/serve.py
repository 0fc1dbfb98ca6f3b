"""The command ``faust-assigner serve``."""

from __future__ import annotations

import os

import click

from faust_assigner.cli.failure import fail, reported_errors


def _switch_declaration(flag: str) -> str:
    """Return click's declaration of a switch that is on by default: ``--x/--no-x``."""
    return f"{flag}/{flag.replace('--', '--no-', 1)}"


class _ServeCommand(click.Command):
    """A command whose options are generated from the service's settings when they are needed."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return an option for each setting, and the command's other options."""
        from faust_assigner.settings.service import OPTIONS, flag
        from faust_assigner.settings.service_kinds import REPEATED

        found: list[click.Parameter] = [
            click.Option(
                [_switch_declaration(flag(setting)) if setting.default is True else flag(setting)],
                multiple=setting.kind in REPEATED,
                is_flag=isinstance(setting.default, bool),
                default=None,
                metavar=None if isinstance(setting.default, bool) else setting.metavar,
                help=f"{setting.meaning}  [{setting.name}; default: {setting.default_text}]",
            )
            for setting in OPTIONS
        ]
        return [*found, *super().get_params(ctx)]


@click.command(cls=_ServeCommand)
def serve(**said: object) -> None:
    """Run one instance of the assigner service until SIGTERM or Ctrl-C."""
    with reported_errors():
        from faust_assigner.service.server.options import Options
        from faust_assigner.service.server.serve import serve as run

        given = {
            name: ",".join(value) if isinstance(value, tuple) else value
            for name, value in said.items()
            if value is not None and value != ()
        }
        options = Options.read(given, os.environ)
        try:
            run(options, click.echo)
        except OSError as error:
            fail(error, 1)

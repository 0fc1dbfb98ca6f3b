"""Runs the test: ``python -m faust_assigner.service.conformance [--rule NAME] -- COMMAND ...``."""

from __future__ import annotations

import asyncio

import click

from faust_assigner.service.conformance.rules import RULES, broken
from faust_assigner.service.conformance.stage import PATIENCE_S
from faust_assigner.service.conformance.subjects import process_of


@click.command(context_settings={"ignore_unknown_options": False})
@click.option(
    "--rule", "rules", multiple=True, type=click.Choice(list(RULES)), help="Check only this rule."
)
@click.option(
    "--patience",
    default=PATIENCE_S,
    show_default=True,
    type=click.FloatRange(min=1),
    metavar="SECONDS",
    help="The time limit for each step of the client.",
)
@click.argument("command", nargs=-1, required=True)
def main(rules: tuple[str, ...], patience: float, command: tuple[str, ...]) -> None:
    """Check the client that COMMAND starts against every safety rule, in a new process for each rule.

    COMMAND finds ASSIGNER_TARGET, ASSIGNER_NAME and ASSIGNER_TOPIC in its environment. The client must work
    ten times a second on each partition that it owns. For each write it prints the line `WORK TOPIC PARTITION
    EPOCH SECONDS`, and flushes it at once. SECONDS is the time of the write by CLOCK_MONOTONIC. The exit code
    is 1 if a rule is broken, and 2 if COMMAND does not start or prints an invalid line.
    """
    start, found = process_of(command), 0
    for rule in rules or tuple(RULES):
        try:
            how = asyncio.run(broken(rule, start, patience_s=patience))
        except (OSError, ValueError) as error:
            raise click.UsageError(f"could not test {command[0]}: {error}") from error
        found += bool(how)
        click.echo(f"{rule}: {f'BROKEN: {how}' if how else 'kept'}")
    raise SystemExit(1 if found else 0)


if __name__ == "__main__":
    main()

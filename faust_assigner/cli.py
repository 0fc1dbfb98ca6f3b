"""The ``faust-assigner`` command: parse, call, print. Nothing imports this module."""

from __future__ import annotations

import click

from faust_assigner import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="faust-assigner")
def main() -> None:
    """Partition assignment for Faust: an embedded broker, plans, history, snapshots, simulation."""


if __name__ == "__main__":
    main()

"""Runs the ``faust-assigner`` command for ``python -m faust_assigner.cli``."""

from faust_assigner.cli.commands import main

main()

"""Run many seeds of the assigner service."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple

from tests.property.lives import main
from tests.property.service_sim import run
from tests.property.service_sim.run import Outcome


def told(outcomes: Sequence[Outcome]) -> str:
    """Format the sums over all outcomes."""
    completed, aborted, commits, fenced, answers = map(
        sum, zip(*map(astuple, outcomes), strict=True)
    )
    return (
        f"hand-offs {completed} completed, {aborted} aborted; commits {commits} taken, {fenced} fenced; "
        f"{answers} answers"
    )


if __name__ == "__main__":
    main("tests.property.service_sim", run, told, seeds=100, steps=25)

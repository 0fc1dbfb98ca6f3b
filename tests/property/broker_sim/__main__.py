"""Run many seeds."""

from __future__ import annotations

from tests.property.broker_sim import run
from tests.property.lives import main

if __name__ == "__main__":
    main(
        "tests.property.broker_sim",
        run,
        lambda checks: f"{sum(checks)} logs compared",
        seeds=200,
        steps=150,
    )

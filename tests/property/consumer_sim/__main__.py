"""Run many seeds of a consumer group."""

from __future__ import annotations

from tests.property.consumer_sim import run
from tests.property.lives import main

if __name__ == "__main__":
    main(
        "tests.property.consumer_sim", run, lambda stables: f"{sum(stables)} stable states checked"
    )

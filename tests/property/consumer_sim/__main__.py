"""Run many seeds; print the first violation, its seed and what is needed to see it."""

from __future__ import annotations

import argparse
import logging
import sys
import time

from tests.property.consumer_sim import Violation, run


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.property.consumer_sim")
    parser.add_argument("--seeds", type=int, default=1_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()
    logging.disable()  # disks that fail are part of the play
    began, stables = time.process_time(), 0
    for seed in range(options.first, options.first + options.seeds):
        try:
            stables += run(seed, options.steps)
        except Violation as violation:
            again = f"python -m tests.property.consumer_sim --first {seed} --seeds 1 --steps {options.steps}"
            sys.exit(f"{violation}\nrerun: {again}")
    took = time.process_time() - began
    print(
        f"{options.seeds} seeds from {options.first}, {options.steps} steps each: 0 violations, "
        f"{stables} stable states checked, {took:.1f} s of CPU"
    )


if __name__ == "__main__":
    main()

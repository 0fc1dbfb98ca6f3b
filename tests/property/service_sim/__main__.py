"""Run many seeds; print the first violation, its seed and what is needed to see it."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from dataclasses import astuple

from tests.property.service_sim import Violation, run


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.property.service_sim")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--steps", type=int, default=25)
    options = parser.parse_args()
    logging.disable()
    began, totals = time.process_time(), [0] * 5
    for seed in range(options.first, options.first + options.seeds):
        try:
            saw = astuple(run(seed, options.steps))
        except Violation as violation:
            again = f"python -m tests.property.service_sim --first {seed} --seeds 1 --steps {options.steps}"
            sys.exit(f"{violation}\nrerun: {again}")
        totals = [total + seen for total, seen in zip(totals, saw, strict=True)]
    took = time.process_time() - began
    print(f"{options.seeds} seeds from {options.first}, {options.steps} acts each: 0 violations; "
          f"hand-offs {totals[0]} completed, {totals[1]} aborted; commits {totals[2]} taken, "
          f"{totals[3]} fenced; "
          f"{totals[4]} answers; {took:.1f} s of CPU")


if __name__ == "__main__":
    main()

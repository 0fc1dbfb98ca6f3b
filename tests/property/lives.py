"""Parts shared by the simulators: violations, lives, shrinking and the command line."""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

ACTS = 100_000  # the maximum of repeated acts: a few seconds
T = TypeVar("T")


class Violation(AssertionError):
    """A broken promise, named in the message."""


def must(holds: object, promise: str, *details: object) -> None:
    """Raise Violation unless ``holds`` is true."""
    if not holds:
        raise Violation(": ".join([promise, *(str(d) for d in details)]))


class Trial(Protocol):
    """The code under test, driven by acts; ``stables`` counts the checked stable states."""

    now: int
    stables: int

    def do(self, act: Any) -> Mapping[int, Any]:
        """Carry out an act; return the answers by ticket. Raises Violation."""


class World(Protocol):
    """The source of a life's acts."""

    acts: list[Any]
    trial: Any

    def step(self) -> None:
        """Draw and do another act."""

    def settle(self) -> None:
        """Let the group become stable."""


def one_life(
    seed: int,
    steps: int,
    world: World,
    anew: Callable[[], Trial],
    *,
    head: str,
    told: Callable[[Any], str],
) -> int:
    """Run a life; return the number of checked stable states.

    ``anew`` makes the trial for repeating acts, ``head`` describes the trial's setting, and
    ``told`` an act. Raises Violation with the seed and a short transcript.
    """
    try:
        for _ in range(steps):
            world.step()
        world.settle()
    except Violation as violation:
        short = shrink(anew, world.acts)
        lines = [f"seed {seed}: {violation}", f"{len(short)} of {len(world.acts)} acts:", head]
        raise Violation("\n".join([*lines, *transcript(anew(), short, told)])) from None
    stables: int = world.trial.stables
    return stables


def broken(trial: Trial, run: Sequence[Any]) -> int | None:
    """Return the number of acts up to a violation; None without a violation."""
    for number, act in enumerate(run, 1):
        try:
            trial.do(act)
        except Violation:
            return number
    return None


def shrink(anew: Callable[[], Trial], run: Sequence[Any], budget: int = ACTS) -> list[Any]:
    """Return a short run with a violation; the whole run for a violation in ``settle`` (B10).

    Acts are dropped in ever smaller pieces while a violation remains.
    """
    found = broken(anew(), run)
    if found is None:
        return list(run)
    short = list(run[:found])
    size = max(len(short) // 2, 1)
    while budget > 0:
        start, smaller = 0, False
        while start < len(short) and budget > 0:
            candidate = short[:start] + short[start + size :]
            budget -= len(candidate)
            found = broken(anew(), candidate)
            if found is None:
                start += size
            else:
                short, smaller = candidate[:found], True
        if size == 1 and not smaller:
            break
        size = max(size // 2, 1)
    return short


def transcript(trial: Trial, run: Sequence[Any], told: Callable[[Any], str]) -> list[str]:
    """Return the run as text: each act with its time and answers."""
    lines = []
    for act in run:
        lines.append(f"{trial.now:>8} {told(act)}")
        try:
            lines += [f"{'':>12} -> {told(reply)}" for reply in trial.do(act).values()]
        except Violation as violation:
            return [*lines, f"{'':>8} !! {violation}"]
    return lines


def under_two_hash_seeds(program: str) -> tuple[str, str]:
    """Return the output of ``program`` under two hash seeds: both must be equal."""
    one, other = (
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    )
    return one, other


def main(
    module: str,
    run: Callable[[int, int], T],
    told: Callable[[Sequence[T]], str],
    *,
    seeds: int = 1_000,
    steps: int = 60,
) -> None:
    """Run many seeds; print the first violation and the command to reproduce it."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}")
    parser.add_argument("--seeds", type=int, default=seeds)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--steps", type=int, default=steps)
    options = parser.parse_args()
    logging.disable()  # the simulators cause failing disks
    began, found = time.process_time(), []
    for seed in range(options.first, options.first + options.seeds):
        try:
            found.append(run(seed, options.steps))
        except Violation as violation:
            again = f"python -m {module} --first {seed} --seeds 1 --steps {options.steps}"
            sys.exit(f"{violation}\nrerun: {again}")
    took = time.process_time() - began
    print(
        f"{options.seeds} seeds from {options.first}, {options.steps} steps each: 0 violations, "
        f"{told(found)}, {took:.1f} s of CPU"
    )

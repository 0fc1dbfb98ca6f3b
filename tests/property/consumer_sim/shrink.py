"""From a failing run to a short one: drop acts, in ever smaller pieces, as long as some promise breaks."""

from __future__ import annotations

from collections.abc import Sequence

from tests.property.consumer_sim import acts
from tests.property.consumer_sim.model import Violation
from tests.property.consumer_sim.trial import Trial

ACTS = 100_000  # to repeat at most, a few seconds


def broken(setting: acts.Setting, run: Sequence[acts.Act]) -> tuple[int, Violation] | None:
    """How many acts it takes to break a promise, and which; None if none breaks."""
    trial = Trial(setting)
    for number, act in enumerate(run, 1):
        try:
            trial.do(act)
        except Violation as violation:
            return number, violation
    return None


def shrink(setting: acts.Setting, run: Sequence[acts.Act], budget: int = ACTS) -> list[acts.Act]:
    """A short run that breaks a promise; the run itself where acts alone do not (a settled group, B10)."""
    found = broken(setting, run)
    if found is None:
        return list(run)
    short = list(run[: found[0]])
    size = max(len(short) // 2, 1)
    while budget > 0:
        start, smaller = 0, False
        while start < len(short) and budget > 0:
            candidate = short[:start] + short[start + size :]
            budget -= len(candidate)
            found = broken(setting, candidate)
            if found is None:
                start += size
            else:
                short, smaller = candidate[: found[0]], True
        if size == 1 and not smaller:
            break
        size = max(size // 2, 1)
    return short


def transcript(setting: acts.Setting, run: Sequence[acts.Act]) -> str:
    """The run as text: each act with its time, and the answers it brought."""
    trial = Trial(setting)
    lines = [acts.told(setting)]
    for act in run:
        lines.append(f"{trial.now:>8} {acts.told(act)}")
        try:
            lines += [f"{'':>12} -> {acts.told(reply)}" for reply in trial.do(act).values()]
        except Violation as violation:
            lines.append(f"{'':>8} !! {violation}")
            break
    return "\n".join(lines)

"""The results of each step of the actives on made-up groups, line by line: ``record.txt``.

``python -m tests.unit.actives.test_record`` writes the record of today, to be read before it is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import pytest

from faust_assigner.actives.counts import flow_rates, optimal_counts, rates
from faust_assigner.actives.cycles import cycles_of
from faust_assigner.actives.numbers import assign_numbers, count_by_member, keep_and_shed
from faust_assigner.actives.potentials import fluid_start, warm_start, water_fill
from faust_assigner.actives.semi_matching import Orphans, place_orphans
from faust_assigner.actives.transport import Flow, Transport
from faust_assigner.actives.warm_matching import match_warm
from faust_assigner.model import NOBODY, Bools, Floats, Ints
from tests.scenarios.test_plans_of_record import letters
from tests.support.lives import compare, turns, write

RECORD = Path(__file__).with_name("record.txt")


class Dice:
    """Random arrays from one seed."""

    def __init__(self, seed: int) -> None:
        self._rng = Random(seed)

    def below(self, most: int) -> int:
        """A number below ``most``."""
        return int(self._rng.random() * most)

    def ints(self, most: int, *shape: int, least: int = 0) -> Ints:
        """Numbers from ``least`` to below ``most``."""
        count = int(np.prod(shape))
        found = [least + self.below(most - least) for _ in range(count)]
        return np.array(found, dtype=np.int64).reshape(shape)

    def flags(self, percent: int, *shape: int) -> Bools:
        """Flags of which about ``percent`` of a hundred are set."""
        return self.ints(100, *shape) < percent

    def capacities(self, members: int) -> Floats:
        """Capacities with small and large fractions."""
        return np.array([1.0, 2.0, 0.5, 3.0, 1.25, 0.001, 7.0])[self.ints(6, members)]


def rows(table: Ints) -> str:
    """A table in one line."""
    return "/".join(",".join(map(str, row)) for row in table.tolist())


def counts(seed: int) -> Iterator[str]:
    """Yield the counts, rates and potentials of groups of different subscribers and capacities."""
    dice = Dice(seed)
    groups, members = 1 + dice.below(3), 2 + dice.below(4)
    sizes = dice.ints(14, groups, least=1)
    allowed = dice.flags(100 if seed % 3 == 0 else 65, groups, members)
    allowed[np.arange(groups), dice.ints(members, groups)] = True
    capacity = np.ones(members) if seed % 2 else dice.capacities(members)
    before = [dice.ints(members, int(size), least=NOBODY) for size in sizes]
    held = np.array([count_by_member(one, members) for one in before]) * allowed
    warm, home = (
        dice.ints(4, groups, members) * allowed,
        np.minimum(held, dice.ints(3, *held.shape)),
    )
    yield f"{seed}: sizes {sizes.tolist()} capacity {capacity.tolist()} held {rows(held)}"
    yield f"  rates {rates(capacity).tolist()} {flow_rates(sizes, allowed, capacity).tolist()}"
    yield f"  counts {rows(optimal_counts(sizes, allowed, held, warm, capacity, home))}"
    yield f"  without homes {rows(optimal_counts(sizes, allowed, held, warm, capacity))}"
    rate = flow_rates(sizes, allowed, capacity)
    fluid = water_fill(sizes, allowed, rate / rate.min())
    yield f"  fluid {'/'.join(' '.join(f'{x:.4f}' for x in row) for row in fluid)}"
    flow = Flow(
        Transport(supply=sizes, allowed=allowed, kept=held, warm=warm, home=home, rate=rate)
    )
    unit = flow.digits.group
    for name, (of_group, of_member) in (
        ("from the last", warm_start(flow, held)),
        ("from a fluid", fluid_start(flow)),
    ):
        yield f"  {name} {(of_group // unit).tolist()} {(of_member // unit).tolist()}"


def numbers(seed: int) -> Iterator[str]:
    """Yield the numbers that members keep, give up and receive, with each preference."""
    dice = Dice(seed)
    n, members = 5 + dice.below(9), 2 + dice.below(4)
    before = dice.ints(members, n, least=NOBODY)
    held = count_by_member(before, members)
    target = count_by_member(dice.ints(members, n), members)
    home = dice.ints(members, n, least=NOBODY)
    number, member = np.nonzero(dice.flags(35, n, members))
    number, member = number[before[number] != member], member[before[number] != member]
    ready = dice.flags(50, n, members)
    spare, room = np.maximum(held - target, 0), np.maximum(target - held, 0)
    moves, to = match_warm(before, spare, room, number, member)
    plain = assign_numbers(before, target, held, number, member)
    homes = assign_numbers(before, target, held, number, member, home)
    first = assign_numbers(before, target, held, number, member, None, lambda p, m: ready[p, m])
    both = assign_numbers(before, target, held, number, member, home, lambda p, m: ready[p, m])
    yield f"{seed}: before {letters(before)} counts {target.tolist()} home {letters(home)}"
    yield f"  warm {moves.tolist()} to {letters(to)} kept {letters(keep_and_shed(before, target, held))}"
    yield "  " + " ".join(letters(one) for one in (plain, homes, first, both))


def orphans(seed: int) -> Iterator[str]:
    """Yield the places of orphans, with and without even state."""
    dice = Dice(seed)
    count, groups, members = 4 + dice.below(5), 1 + dice.below(3), 3 + dice.below(3)
    may = dice.flags(45, count, members)
    may[np.arange(count), dice.ints(members, count)] = True
    orphan, holder = np.nonzero(may)
    settled = dice.ints(4, groups, members)
    group = np.sort(dice.ints(groups, count))
    former, target = (dice.ints(members, count, least=NOBODY) for _ in range(2))
    rate = rates(dice.capacities(members))
    for state in (None, settled[0]):
        found = place_orphans(
            Orphans(
                group=group, former=former, target=target, orphan=orphan, holder=holder,
                settled=settled, state=state, rate=rate,
            )
        )  # fmt: skip
        yield f"{seed}: orphans {letters(found)} settled {rows(settled)} rates {rate.tolist()}"


def circles(seed: int) -> str:
    """The circles among random parents."""
    up = Dice(seed).ints(9, 9, least=NOBODY).tolist()
    return f"{seed}: circles {up} {list(cycles_of(up))}"


def weights(kind: str) -> Iterator[str]:
    """Yield the weighed targets of a life, and their loads."""
    for turn in turns("actives", kind, 6, size=2):
        made = turn.plan
        assert made.weighed is not None
        load = " ".join(f"{one:.4f}" for one in made.weighed.load(made.flat_target))
        figures = " ".join(f"{one:.6g}" for one in made.weighed.figures(made.flat_owner).values())
        yield turn.name
        yield f"  {letters(made.flat_counted_target)} {letters(made.flat_target)}"
        yield f"  {load}; {figures}"


def seeded(first: int) -> Iterator[str]:
    """Yield the results of nine seeds."""
    for seed in range(first, first + 9):
        yield from counts(seed)
        yield from numbers(seed)
        yield from orphans(seed)
        yield circles(seed)


SECTIONS = ("0", "9", "18", "27", "weights, mixed", "warm-ups, weights")


def record(name: str) -> Iterator[str]:
    """Yield a section: nine seeds, or the turns of a life."""
    return seeded(int(name)) if name.isdecimal() else weights(name)


@pytest.mark.parametrize("name", SECTIONS)
def test_the_steps_of_the_actives_give_the_results_of_the_record(name: str) -> None:
    """Counts, numbers, orphans, circles, potentials and weights of seeded groups."""
    compare(name, record(name), RECORD)


if __name__ == "__main__":
    write(RECORD, ((name, record(name)) for name in SECTIONS))

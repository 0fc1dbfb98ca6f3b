"""What each stage of the planner makes of the claims of a life, line by line: ``stages.txt``.

``python -m tests.unit.test_stages`` writes the record of today, to be read before it is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenarios.test_plans_of_record import letters
from tests.support.lives import Turn, compare, turns, write

RECORD = Path(__file__).with_name("stages.txt")
KINDS = (
    "warm-ups, mixed",
    "warm-ups, weights",
    "mixed, uneven, racks",
    "three copies, two racks",
    "weights",
)


def claims(turn: Turn) -> Iterator[str]:
    """Yield the groups and the last assignment."""
    made, previous = turn.plan, turn.plan.previous
    for g, group in enumerate(made.groups):
        yield (
            f"{group.group_id} {'+'.join(group.topics)} {group.partitions} of {letters(group.members)} "
            f"tables {'+'.join(group.changelogs)} follows {group.follows} {group.weightless} "
            f"{group.adds_load} {group.is_stateful}"
        )
        flats = {
            "was": previous.owner,
            "former": previous.former,
            "home": previous.home,
            "awaited": previous.awaited,
            "last": previous.last_owner,
        }
        yield "  " + " ".join(f"{k} {letters(made.layout.of(g, v))}" for k, v in flats.items())
    yield "copies " + " ".join(
        f"{task}{letters([m])}{logs}{'s' * bool(was)}"
        for task, m, logs, was in zip(
            previous.copy_task.tolist(),
            previous.copy_member.tolist(),
            previous.copy_logs.tolist(),
            previous.copy_was_standby.tolist(),
            strict=True,
        )
    )
    layout = made.layout
    yield f"capacity {layout.capacity.tolist()} rack {layout.rack.tolist()} start {layout.start.tolist()}"


def stages(turn: Turn) -> Iterator[str]:
    """Yield the result of each stage, over all tasks."""
    made = turn.plan
    yield f"counted  {letters(made.flat_counted_target)}"
    yield f"target   {letters(made.flat_target)}"
    yield f"promoted {''.join('-!'[int(one)] for one in made.promoted)}"
    if made.waiting is not None:
        yield f"waiting  {''.join('-!'[int(one)] for one in made.waiting)}"
    yield f"owner    {letters(made.flat_owner)}"
    for column in made.flat_standby.T:
        yield f"standby  {letters(column)}"
    if made.warmup_plan is not None:
        yield f"final    {letters(made.warmup_plan.target)}"
        yield f"warmup   {letters(made.warmup_plan.warmup)}"
        yield f"awaited  {letters(made.warmup_plan.awaited)}"
        yield f"disbelieved {dict(made.warmup_plan.disbelieved)}"
    for name in made.member_ids[:: len(made.member_ids) - 1]:
        yield f"{name} owns {made.actives(name)} copies {made.standbys(name)}"
        yield f"  warms {made.warmups(name)} awaits {made.awaited(name)}"


SECTIONS = KINDS


def record(kind: str) -> Iterator[str]:
    """Yield the turns of a life."""
    for turn in turns("stages", kind, 6):
        yield turn.name
        yield from claims(turn)
        yield from stages(turn)


@pytest.mark.parametrize("name", SECTIONS)
def test_each_stage_gives_the_result_of_the_record(name: str) -> None:
    """Claims, targets, promotions, waiting tasks, followers, standbys, and each member's part."""
    compare(name, record(name), RECORD)


if __name__ == "__main__":
    write(RECORD, ((name, record(name)) for name in SECTIONS))

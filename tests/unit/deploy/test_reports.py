"""Whole answers of deploy-check: the text and the JSON of each event, on groups of different members.

``python -m tests.unit.deploy.test_reports`` writes the answers of today, to be read before they are kept.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from rich.console import Console

from faust_assigner.deploy.judge import Budget, judge
from faust_assigner.deploy.pauses import Recoveries, Recovery
from faust_assigner.deploy.play import Question, _new_workers, _restarted_worker, play
from faust_assigner.deploy.read import Seen, read_evidence
from faust_assigner.deploy.render import render
from faust_assigner.deploy.report import Report
from faust_assigner.deploy.steps import Known
from faust_assigner.status.evidence import Heard
from faust_assigner.wire.documents import dumps
from faust_assigner.wire.worker_status import TableStatus
from tests.support.coordination.transcript import shown
from tests.support.status import LOG, MadeGroup
from tests.unit.deploy.looks import SETTINGS, evidence, whole

FOLDER: Final = Path(__file__).with_name("reports")
USERS: Final = "shop-users-changelog"
TOPICS: Final = {"orders": 6, LOG: 6, USERS: 4, "news": 3}
#: Member -> its offered facts.
MEMBERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "m0": {"rack_id": "a", "capacity": 2.0},
    "m1": {"rack_id": "a"},
    "m2": {"rack_id": "b", "instance_id": "i2"},
    "m3": {"rack_id": "b"},
}
RECOVERIES: Final = Recoveries(
    known=(
        Recovery(topic=LOG, source="standby", records=10, seconds=0.5),
        Recovery(topic=LOG, source="replay", records=4_000, seconds=8.0),
        Recovery(topic=USERS, source="replay", records=20, seconds=1.5),
    ),
    origin="the ledger of m0",
)


def fleet(**more: Mapping[str, Any]) -> MadeGroup:
    """Return the members at rest; ``more`` changes a member's offer."""
    made = MadeGroup(topics=TOPICS, end=5_000)
    for name, offer in MEMBERS.items():
        made.join(name, **{"holds": True, **offer, **more.get(name, {})})
    for _ in range(4):
        whole(made)
    return made


def look(made: MadeGroup, settings: Mapping[str, str] | None = None, **more: Any) -> Seen:
    """Return a look: m1's copies are 500 records behind, and all disks and hosts differ."""
    base = evidence(made, lags={"m1": 500}, settings={**SETTINGS, **(settings or {})})
    heard: dict[str, Heard] = {}
    for n, (url, told) in enumerate(base.heard.items()):
        assert told.status is not None
        tables = tuple(
            TableStatus(
                name=t, changelog=t, store="rocksdb",
                bytes={str(p): 1_000 * (n + 1) + 10 * p + len(t) for p in range(6)},
            )
            for t in (LOG, USERS)
        )  # fmt: skip
        status = replace(
            told.status, tables=tables, disk_free_bytes=40_000 * (n + 1), is_leader=n == 0
        )
        heard[url] = replace(told, status=replace(status, **more))
    return read_evidence(replace(base, heard=heard))


def answer(
    question: Question, found: Callable[[], Seen], budget: Budget | None = None, **known: Any
) -> Callable[[], Report]:
    """Return the answer to a question about a look."""
    facts = Known(**{"recoveries": RECOVERIES, **known})
    return lambda: judge(found(), question, budget or Budget(cold=0, pause_s=5.0), facts)


@cache
def calm() -> Seen:
    """Return a look at the members."""
    return look(fleet())


def full() -> Seen:
    """Return a look at full disks and a restoring worker."""
    return look(
        fleet(), disk_free_bytes=7, restore_remaining_records=1_234, not_ready=("recovering",)
    )


def eager() -> Seen:
    """Return a look at a group with a member without cooperative rebalances."""
    return look(fleet(m3={"cooperative": False, "holds": False}))


def unprepared() -> Seen:
    """Return a look at workers without hand-over and warm-ups that weigh partitions."""
    return look(
        fleet(),
        {
            "FAUST_ASSIGNER_LEAVE_S": "0",
            "FAUST_ASSIGNER_WARMUPS": "0",
            "FAUST_ASSIGNER_WEIGHTS": "weights.json",
            "FAUST_ASSIGNER_WEIGHTS_MODE": "on",
        },
    )


def preparing() -> Seen:
    """Return a look during a rebalance."""
    made = fleet()
    made.state = "PreparingRebalance"
    return look(made)


ANSWERS: Final[Mapping[str, Callable[[], Report]]] = {
    "stop": answer(Question(kind="stop", workers=("w3",)), calm),
    "stop-two": answer(
        Question(kind="stop", workers=("pod-1", "w0:6066")), full, Budget(cold=None, members=5)
    ),
    "stop-static": answer(Question(kind="stop", workers=("i2",)), calm, restart_s=30.0),
    "stop-unprepared": answer(
        Question(kind="stop", workers=("w0",)), unprepared, Budget(cold=3, members=4),
        recoveries=Recoveries(),
    ),
    "stop-eager": answer(Question(kind="stop", workers=("w3",)), eager),
    "stop-preparing": answer(Question(kind="stop", workers=()), preparing),
    "rolling": answer(Question(kind="rolling"), calm, Budget(cold=2, pause_s=90.0)),
    "lose-rack": answer(Question(kind="lose rack", rack="b"), calm),
    "scale-out": answer(Question(kind="scale", size=6), calm),
    "scale-in": answer(Question(kind="scale", size=2), calm, restart_s=1.0),
}  # fmt: skip


def told(name: str) -> str:
    """Return the answer as text and as JSON."""
    report = ANSWERS[name]()
    screen = io.StringIO()
    Console(file=screen, width=140).print(render(report))
    lines = [line.rstrip() for line in screen.getvalue().splitlines()]
    return "\n".join([*lines, "", json.dumps(json.loads(dumps(report)), indent=1)]) + "\n"


def life() -> str:
    """Return every field of a fleet after a stop, a catch-up of copies and four joins."""
    start = calm().fleet
    assert start is not None
    now, moved = start.without(["w3"]).at_rest()
    then, later = now.settled()
    returned = _restarted_worker(start.workers["w1"])
    wide, gained = then.with_workers([returned, *_new_workers(then, 3)]).at_rest()
    lines = []
    for title, one, moves in (
        ("now", start, ()), ("w3 stops", now, moved), ("later", then, later),
        ("four join", wide, gained), ("caught up", wide.caught_up(), ()),
    ):  # fmt: skip
        lines.append(f"{title}: generation {one.generation}, cooperative {one.is_cooperative}")
        for worker in one.workers.values():
            positions = dict(sorted(worker.positions.items()))
            lines.append(f"    {shown(replace(worker, positions=positions))}")
        lines += [f"    owner {shown(dict(sorted(one.owner.items())))}"]
        lines += [f"    owners {shown(dict(sorted(one.owners().items())))}"]
        lines += [f"    copies of {name} {shown(held)}" for name, held in one.copies().items()]
        lines += [f"    {shown(move)}" for move in moves]
    lines += [f"{shown(played)}" for played in play(start, Question(kind="rolling"), ["w1", "i2"])]
    return "\n".join(lines) + "\n"


def test_a_fleet_has_the_members_positions_owners_and_moves_of_its_file() -> None:
    """The file beside this test has each worker after each event."""
    assert life() == (FOLDER / "life.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_has_the_text_and_the_values_of_its_file(name: str) -> None:
    """The file beside this test has the verdict, each check, each move, and each pause."""
    assert told(name) == (FOLDER / f"{name}.txt").read_text(encoding="utf-8")


if __name__ == "__main__":
    (FOLDER / "life.txt").write_text(life(), encoding="utf-8")
    for one in ANSWERS:
        (FOLDER / f"{one}.txt").write_text(told(one), encoding="utf-8")

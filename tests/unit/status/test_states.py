"""The status of a group in several states: the whole report, and its whole text with all partitions.

``python -m tests.unit.status.test_states`` writes the files of today, to be read before they are kept.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from rich.console import Console

from faust_assigner.scaler.look import look_of
from faust_assigner.status.build import build
from faust_assigner.status.evidence import Evidence, Heard
from faust_assigner.status.render import render
from faust_assigner.status.report import ANSWERED, SILENT
from faust_assigner.warmup import WarmupPolicy
from faust_assigner.wire.documents import dumps
from faust_assigner.wire.worker_status import Peer, Standstill, WaitUnderWay
from tests.support.status import AT, LOG, MadeGroup, group

FOLDER: Final = Path(__file__).with_name("states")
ORDERS: Final = ("orders", 0), ("orders", 3)


def _heard(made: MadeGroup, name: str, **more: Any) -> dict[str, Heard]:
    """Return one worker's answer with these fields."""
    return {made.claims[name].url: Heard(answer=ANSWERED, status=made.status_of(name, **more))}


def stable() -> Evidence:
    """All members answer; one partition has a lag, one was never committed."""
    found = group(3).evidence()
    places = {**found.committed, ("orders", 1): 0}
    return replace(found, committed={p: at for p, at in places.items() if p != ("orders", 5)})


def preparing() -> Evidence:
    """A rebalance: no member's data; workers name their peers, urls are known from before."""
    made = group(3)
    made.state = "PreparingRebalance"
    peers = [Peer(url=f"http://w{n}:6066", instance_id="s" * n or None) for n in range(2)]
    return made.evidence(peers=peers, urls={"m2": "http://w2:6066"}, silent=("m1",))


def empty() -> Evidence:
    """The group has no members, but offsets."""
    return MadeGroup(state="Empty").evidence(committed=400)


def dead() -> Evidence:
    """The group is unknown to its coordinator."""
    return replace(MadeGroup(state="Dead").evidence(), committed={}, ends={})


def silent() -> Evidence:
    """One member does not answer, one answers for another application, one names another member."""
    made = group(4)
    url = made.claims["m1"].url
    heard = {
        **_heard(made, "m2", app="other"),
        **_heard(made, "m3", member_id="someone"),
        url: Heard(answer=SILENT, detail="it did not answer within 3 s"),
    }
    return made.evidence(heard=heard, problems=("the offsets of a topic are unknown",))


def restoring() -> Evidence:
    """A member restores, another waits; partitions stand still for several reasons."""
    made = group(2, replicas=0)
    standing = (
        Standstill(topic="orders", partition=0, reason="restoring", seconds=75.0),
        Standstill(topic="orders", partition=3, reason="paused", seconds=5.0),
        Standstill(topic="orders", partition=4, reason="stuck", seconds=4_000.0),
    )
    waits = (WaitUnderWay(what="The commit", step="the flush", seconds=12.5),)
    heard = {
        **_heard(
            made,
            "m0",
            standing=standing,
            restore_remaining_records=12_345,
            restore_remaining_s=61.0,
            not_ready=("1 table restores",),
        ),
        **_heard(made, "m1", waits=waits, not_live=("the loop hangs",)),
    }
    return made.evidence(heard=heard)


def leaving() -> Evidence:
    """A static member leaves; one has joined since the last round; versions and settings differ."""
    made = group(0, rounds=0).join("m0", "m1").join("m2", instance_id="shop-2", capacity=2.0)
    made.round().round()
    heard = {
        **_heard(
            made, "m2", is_leaving=True, software="0.2.0", disk_free_bytes=5, disk_size_bytes=9
        ),
        **_heard(made, "m1", python="3.12.0", settings={"FAUST_ASSIGNER_STALE_READS_S": "7"}),
    }
    return made.evidence(heard=heard)


def warming() -> Evidence:
    """A new member warms up its partitions; copies lag."""
    made = group(2).join("m2")
    made.claims["m2"] = replace(made.claims["m2"], positions={LOG: dict.fromkeys(range(6), 10)})
    made.round(warmups=WarmupPolicy())
    return made.evidence(heard=_heard(made, "m2", lag=700), committed=999)


def leaderless() -> Evidence:
    """Partitions without a leader, missing ends, offsets beyond the end, a foreign topic."""
    found = group(2).evidence(leaderless=frozenset({*ORDERS, (LOG, 2)}))
    ends = {place: end for place, end in found.ends.items() if place not in found.leaderless}
    ends[("orders", 1)] = 10
    return replace(found, ends=ends, committed={**found.committed, ("gone", 2): 8})


def global_tables() -> Evidence:
    """A global changelog, Faust's leader topic, and two races of an answer with a round."""
    topics = {"orders": 3, LOG: 3, "shop-rates-changelog": 2, "shop-__assignor-__leader": 1}
    made = group(2, topics=topics, global_changelogs=("shop-rates-changelog",))
    return made.evidence(heard=_heard(made, "m1", generation=1, decision_id="old"), taken_at=AT + 9)


def old_members() -> Evidence:
    """The round had members that are gone; the remaining ones hold two claims to a partition."""
    made = group(3)
    before = dict(made.answers)
    made.leave("m2").round()
    made.answers = {**made.answers, "m1": before["m1"]}
    return made.evidence()


STATES: dict[str, Callable[[], Evidence]] = {
    one.__name__: one
    for one in (
        stable, preparing, empty, dead, silent, restoring, leaving, leaderless, global_tables,
        old_members, warming,
    )
}  # fmt: skip


def lines(evidence: Evidence) -> Iterator[str]:
    """Yield the report's values, its text, and the scaler's view of the same data."""
    report = build(evidence)
    for key, value in json.loads(dumps(report)).items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            yield from (f"{key}[{n}] {json.dumps(row)}" for n, row in enumerate(value))
        else:
            yield f"{key}: {json.dumps(value)}"
    for with_partitions in (False, True):
        console = Console(file=io.StringIO(), width=160, highlight=False, emoji=False)
        console.print(render(report, with_partitions=with_partitions))
        assert isinstance(console.file, io.StringIO)
        yield f"-- as text, {'with' if with_partitions else 'without'} all partitions"
        yield from (line.rstrip() for line in console.file.getvalue().splitlines())
    look = look_of(evidence)
    yield "-- for the scaler"
    yield f"{look.members} members, {look.tasks} tasks, {look.standbys} standbys, {look.backlog} wait"
    yield from (f"busy: {reason}" for reason in look.busy)
    yield from (f"note: {note}" for note in look.notes)
    yield from (f"{place}: {source}" for place, source in look.sources.items())


def told(name: str) -> str:
    """Return the lines of a state."""
    return "\n".join(lines(STATES[name]())) + "\n"


@pytest.mark.parametrize("name", STATES)
def test_a_state_of_a_group_has_the_report_and_the_text_of_its_file(name: str) -> None:
    """The file beside this test has both, and the scaler's view."""
    assert told(name) == (FOLDER / f"{name}.txt").read_text()


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for state in STATES:
        (FOLDER / f"{state}.txt").write_text(told(state))

"""Whole answers about partitions and members: the headline, each event with its time, and each remedy.

``python -m tests.unit.story.test_answers`` writes the answers of today, to be read before they are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from faust_assigner.story.incidents import changed, incidents, members_of
from faust_assigner.story.read import NothingKnown, Story
from faust_assigner.story.tell import Answer, why_member, why_partition
from faust_assigner.warmup import WarmupPolicy
from tests.support.status import AT, LOG, MadeGroup
from tests.unit.story.ledgers import POLICY, Told, offering

FOLDER: Final = Path(__file__).with_name("answers")
TOPICS: Final = {"orders": 5, LOG: 5, "shop-users-changelog": 2, "news": 1}


def fleet(**offers: Mapping[str, object]) -> Told:
    """Four members at rest: two racks, a member of twice the capacity, and a static one."""
    found = Told(MadeGroup(topics=TOPICS, end=5_000), session_timeout_s=45.0)
    found.join("m0", rack_id="a", capacity=2.0)
    found.join("m1", rack_id="a")
    found.join("m2", rack_id="b", instance_id="i2")
    found.join("m3", rack_id="b")
    for name, offer in offers.items():
        offering(found, name, offer)
    return found.round().round()


def death() -> Told:
    """m3 is killed, is back cold, and m1's copy is restored late."""
    found = fleet().leave("m3").round(seconds=90.0)
    for name in sorted(found.group.claims):
        for topic in (LOG, "shop-users-changelog"):
            for number in found.group.answer_of(name).actives.get(topic, ()):
                found.recover(
                    name, topic, number, source="standby", records=10 + number, seconds=1.5 + number
                )
    found.join("m3", rack_id="b").round(seconds=300.0)
    return found.round(seconds=30.0)


def handover() -> Told:
    """m1 hands over, m4 and m5 join together, and m0 no longer leads."""
    found = fleet()
    offering(found, "m1", {"leaves": True})
    found.round().leave("m1").round(seconds=5.0)
    found.join("m4").join("m5", capacity=3.0).round(leader="m2", seconds=3_600.0)
    return found.round(leader="m2", seconds=40.0)


def static() -> Told:
    """The static member is away for too long, without warm-ups and copies; then it is back."""
    found = fleet()
    found.group.replicas = 0
    found.round(warmups=None).leave("m2").round(warmups=None, seconds=200.0)
    found.join("m2", rack_id="b", instance_id="i2").round(warmups=None)
    return found.round(warmups=WarmupPolicy(acceptable_recovery_lag=0))


def widened() -> Told:
    """A topic grows, all warm-ups are done, and the last member leaves alone."""
    found = fleet()
    found.group.topics = {**TOPICS, "orders": 7, LOG: 7}
    found.round(warmups=POLICY).leave("m1").leave("m2").round(warmups=POLICY)
    return found.leave("m3").round(warmups=POLICY)


STORIES: Final[Mapping[str, Callable[[], Told]]] = {
    "death": death,
    "handover": handover,
    "static": static,
    "widened": widened,
}


def shown(answer: Answer) -> Iterator[str]:
    """Every field of an answer; times in seconds since the start."""
    first = "placed first, " if answer.is_first else ""
    restored = "" if answer.restored_s is None else f", restored after {answer.restored_s:.3f} s"
    yield f"{answer.subject} in {answer.group}: {first}{answer.headline}{restored}"
    yield from (f"    {event.at - AT:9.3f} {event.text}" for event in answer.events)
    if answer.rule:
        yield f"    rule: {answer.rule}"
    yield from (f"    {one.change}: {one.then}" for one in answer.avoided_by)
    yield from (f"    not known: {one}" for one in answer.unknown)


def asked(ask: Callable[[], Answer]) -> Iterator[str]:
    """The answer, or the reason why there is none."""
    try:
        yield from shown(ask())
    except NothingKnown as error:
        yield f"nothing known: {error}"


def of(story: Story) -> Iterator[str]:
    """Each incident, then the answers about each partition that moved and each member."""
    found = incidents(story)
    for one in found:
        rounds = ", ".join(f"{d.generation} {d.trigger} at {d.at - AT:.1f}" for d in one.rounds)
        yield (
            f"incident: {rounds}; gone {sorted(one.gone)}, came {sorted(one.came)}, "
            f"handed over {sorted(one.handed_over)}, there {sorted(members_of(one.last))}, "
            f"changed {sorted(changed(one.before, one.first))}"
        )
    moved = {place for one in found for place in changed(one.before, one.last)}
    middle = story.decisions[len(story.decisions) // 2].at
    moved = {place for place in moved if place[0] != LOG}  # the changelog moves with the orders
    for place in [*sorted(moved), (LOG, 0), ("orders", 99)]:
        yield from asked(lambda place=place: why_partition(story, place))
    for place in sorted(moved)[:1]:
        yield from asked(lambda place=place: why_partition(story, place, at=middle - 60.0))
        yield from asked(lambda place=place: why_partition(story, place, at=AT - 60.0))
    names = sorted({n for decision in story.decisions for n in decision.all_names.values()})
    for name in [*names, "http://w0:6066/", "ghost"]:
        yield from asked(lambda name=name: why_member(story, name))
    yield from asked(lambda: why_member(story, names[0], at=middle - 60.0))


def told(name: str) -> str:
    """The answers about a story."""
    return "\n".join(of(STORIES[name]().story())) + "\n"


@pytest.mark.parametrize("name", STORIES)
def test_a_story_has_the_answers_of_its_file(name: str) -> None:
    """The file beside this test has the answers about partitions and members, now and earlier."""
    assert told(name) == (FOLDER / f"{name}.txt").read_text(encoding="utf-8")


if __name__ == "__main__":
    for one in STORIES:
        (FOLDER / f"{one}.txt").write_text(told(one), encoding="utf-8")

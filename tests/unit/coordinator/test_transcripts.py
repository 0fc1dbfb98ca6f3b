"""Whole stories of groups: every effect with every field, in order, and the time of each next timer.

``python -m tests.unit.coordinator.test_transcripts`` writes the transcripts of today, to be read before they
are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import pytest

from faust_assigner.coordinator.classic import ClassicGroup
from faust_assigner.coordinator.consumer import ConsumerGroup
from faust_assigner.coordinator.effects import Group
from faust_assigner.coordinator.settings import ConsumerLimits
from faust_assigner.coordinator.states import GroupLimits
from tests.support.coordination.consumer_bench import catalogue
from tests.support.coordination.transcript import WALL_LEAD_MS, Step, transcript
from tests.unit.coordinator import second_lives, stories, third_lives

FOLDER: Final = Path(__file__).with_name("transcripts")
START_MS: Final = 10_000


def classic() -> Group:
    """Return a classic group before its first member."""
    return ClassicGroup(
        "g",
        GroupLimits(6_000, 60_000, initial_rebalance_delay_ms=3_000, max_size=4, max_pending=2),
        START_MS,
        wall_ms=START_MS + WALL_LEAD_MS,
        consumer=ConsumerLimits(session_timeout_ms=8_000, assignment_interval_ms=500),
        catalogue=catalogue(a=4, b=2),
    )


def consumer(inline_size: int = 2_000) -> Group:
    """Return a consumer group before its first member."""
    limits = ConsumerLimits(
        session_timeout_ms=8_000,
        heartbeat_interval_ms=700,
        max_size=3,
        assignment_interval_ms=500,
        inline_size=inline_size,
    )
    return ConsumerGroup(
        "g",
        limits,
        catalogue(a=4, b=2),
        START_MS,
        restore_classic=ClassicGroup.restore,
        classic_limits=GroupLimits(6_000, 60_000, initial_rebalance_delay_ms=3_000),
    )


STORIES: dict[str, tuple[Callable[[], Group], Sequence[Step]]] = {
    "dynamic": (classic, stories.DYNAMIC),
    "static": (classic, stories.STATIC),
    "late": (classic, stories.LATE),
    "converted": (classic, stories.CONVERTED),
    "consumer": (consumer, stories.CONSUMER),
    "elsewhere": (lambda: consumer(inline_size=0), stories.ELSEWHERE),
    "mixed": (consumer, stories.MIXED),
    "revoking": (consumer, stories.REVOKING),
    "takeover": (consumer, stories.TAKEOVER),
    "emptied": (consumer, stories.EMPTIED),
    "leftovers": (classic, second_lives.LEFTOVERS),
    "bounced": (classic, second_lives.BOUNCED),
    "repeated": (classic, second_lives.REPEATED),
    "restarted": (consumer, second_lives.RESTARTED),
    "moved": (consumer, second_lives.MOVED),
    "returned": (consumer, second_lives.RETURNED),
    "withdrawn": (consumer, second_lives.WITHDRAWN),
    "refused": (classic, third_lives.REFUSED),
    "narrowed": (consumer, third_lives.NARROWED),
    "tied": (consumer, third_lives.TIED),
    "changed": (consumer, third_lives.CHANGED),
    "unsent": (lambda: consumer(inline_size=0), third_lives.UNSENT),
    "targets": (lambda: consumer(inline_size=0), second_lives.LATE_TARGETS),
}


def told(name: str) -> str:
    """Return the transcript of a story."""
    group, steps = STORIES[name]
    return "\n".join(transcript(group(), steps, START_MS)) + "\n"


@pytest.mark.parametrize("name", STORIES)
def test_a_story_has_the_effects_fields_order_and_times_of_its_transcript(name: str) -> None:
    """The file beside this test has the transcript as text."""
    assert told(name) == (FOLDER / f"{name}.txt").read_text()


if __name__ == "__main__":
    for story in STORIES:
        (FOLDER / f"{story}.txt").write_text(told(story))

"""Whole stories of a partition's log: writes, states, the state after a restart, answers to reads.

``python -m tests.unit.broker.storage.test_transcripts`` writes the transcripts of today, to be read
before they are kept.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.unit.broker.storage.bench import Bench
from tests.unit.broker.storage.stories import STORIES

FOLDER: Final = Path(__file__).with_name("transcripts")


def told(name: str) -> str:
    """Return the transcript of a story."""
    bench = Bench()
    STORIES[name](bench)
    return "\n".join(bench.lines) + "\n"


@pytest.mark.parametrize("name", STORIES)
def test_a_story_of_a_log_has_the_lines_of_its_transcript(name: str) -> None:
    """The file beside this test has the transcript as text."""
    assert told(name) == (FOLDER / f"{name}.txt").read_text()


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for story in STORIES:
        (FOLDER / f"{story}.txt").write_text(told(story))

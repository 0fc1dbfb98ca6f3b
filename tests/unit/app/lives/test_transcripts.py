"""Whole lives of groups of workers: each call to Kafka, callback, log line and state, in order.

``python -m tests.unit.app.lives.test_transcripts [LIFE ...]`` writes the transcripts of today, to be read
before they are kept.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import pytest

from tests.unit.app.lives.life import told
from tests.unit.app.lives.overlaps import OVERLAPS
from tests.unit.app.lives.stories import STORIES

LIVES: Final = {**STORIES, **OVERLAPS}
FOLDER: Final = Path(__file__).with_name("transcripts")


@pytest.mark.parametrize("name", LIVES)
def test_a_life_has_the_steps_and_states_of_its_transcript(name: str) -> None:
    """The file beside this test has the transcript as text."""
    assert told(LIVES[name]) == (FOLDER / f"{name}.txt").read_text()


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for story in sys.argv[1:] or LIVES:
        (FOLDER / f"{story}.txt").write_text(told(LIVES[story]))

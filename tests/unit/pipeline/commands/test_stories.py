"""Whole stories of the pipeline's commands: output, exit codes, log lines, and all files they write.

``python -m tests.unit.pipeline.commands.test_stories`` writes the transcripts of today, to be read
before they are kept.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.unit.pipeline.commands.desk import desk
from tests.unit.pipeline.commands.stories import STORIES

FOLDER: Final = Path(__file__).with_name("transcripts")


def told(name: str) -> str:
    """Return the transcript of a story."""
    with desk() as made:
        STORIES[name](made)
    return "\n".join(made.lines) + "\n"


@pytest.mark.parametrize("name", STORIES)
def test_a_story_of_commands_has_the_lines_of_its_transcript(name: str) -> None:
    """The file beside this test has the transcript as text."""
    assert told(name) == (FOLDER / f"{name}.txt").read_text()


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for story in STORIES:
        (FOLDER / f"{story}.txt").write_text(told(story))

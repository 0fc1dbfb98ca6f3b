"""Whole stories of a group: calls with their answers, streams, writes, leases, metrics and log lines.

``python -m tests.unit.service.whole.test_stories`` writes the answers of today, to be read before
they are kept.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.unit.service.whole import lives, stories, wishes
from tests.unit.service.whole.stage import Story, told

FOLDER: Final = Path(__file__).with_name("answers")
STORIES: Final[dict[str, Story]] = {**stories.STORIES, **lives.STORIES, **wishes.STORIES}


@pytest.mark.parametrize("name", STORIES)
def test_a_story_of_a_group_has_the_lines_of_its_file(name: str) -> None:
    """The file beside this test has the lines in order, with their times."""
    assert told(STORIES[name]) == (FOLDER / f"{name}.txt").read_text()


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for story, play in STORIES.items():
        (FOLDER / f"{story}.txt").write_text(told(play))

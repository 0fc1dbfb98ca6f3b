"""Whole answers of stories: each field, the turns of the event loop, the writes and the counters, in order.

``python -m tests.unit.broker.api.test_answers`` writes the answers of today, to be read before they are kept.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.unit.broker.api import (
    stories_of_configs,
    stories_of_groups,
    stories_of_records,
    stories_of_security,
    stories_of_topics,
)
from tests.unit.broker.api.played import Story, played

FOLDER: Final = Path(__file__).with_name("answers")
STORIES: Final[dict[str, Story]] = {
    **stories_of_topics.STORIES,
    **stories_of_configs.STORIES,
    **stories_of_groups.STORIES,
    **stories_of_records.STORIES,
    **stories_of_security.STORIES,
}


@pytest.mark.parametrize("name", STORIES)
def test_a_story_has_the_answers_turns_and_effects_of_its_file(name: str) -> None:
    """The file beside this test has the requests and their answers as text."""
    assert played(STORIES[name]) == (FOLDER / f"{name}.txt").read_text()


if __name__ == "__main__":
    for story, steps in STORIES.items():
        (FOLDER / f"{story}.txt").write_text(played(steps))

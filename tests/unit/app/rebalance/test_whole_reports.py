"""What a leader reports of a round, the order of topics, and files of interrupted writes."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.app.rebalance.findings import _log_unknown_tables
from faust_assigner.app.rebalance.member_claims import _topics
from faust_assigner.app.rebalance.memory_file import NAME, write
from faust_assigner.wire.bounded import NAME_CHARS


@pytest.mark.parametrize(
    ("found", "own", "unknown"),
    [
        ({"a", "b", "c"}, {"b"}, ["a", "c"]),
        ({"b"}, {"a", "b", "c"}, []),
        ({"a"}, {"a"}, []),
        ({"d"}, set(), ["d"]),
    ],
)
def test_only_tables_that_the_leader_lacks_are_unknown(
    caplog: pytest.LogCaptureFixture, found: set[str], own: set[str], unknown: list[str]
) -> None:
    """A table that only the leader has is of a newer or older version, whose members say nothing."""
    counters = Counter({"unknown_tables": 5})
    round_: Any = SimpleNamespace(tables=SimpleNamespace(changelogs=frozenset(found)))
    facts: Any = SimpleNamespace(changelogs=frozenset(own))
    _log_unknown_tables(round_, counters, facts)
    assert counters["unknown_tables"] == 5 + len(unknown)
    lines = [message.rpartition(": ")[2] for message in caplog.messages]
    assert lines == ([", ".join(unknown)] if unknown else [])


@pytest.mark.parametrize("kind", [list, tuple, set, frozenset])
def test_topics_are_sorted_whatever_their_order_and_number(kind: Any) -> None:
    """A topic counts once; a name that is empty, too long or no text is none."""
    names = [f"topic-{number:02}" for number in range(40)]
    longest = "x" * NAME_CHARS
    said = kind([*reversed(names), names[3], "", longest, longest + "x", 7, b"topic-00"])
    assert _topics(said) == (*names, longest)
    assert _topics("topics") == ()


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError, MemoryError])
def test_a_write_that_is_interrupted_leaves_no_file_beside_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """The old memory stays whole."""
    path = tmp_path / NAME
    write(path, "shop", 3, {"orders": [1, 0]}, {})
    before = path.read_bytes()

    def interrupted(*_: object) -> None:
        raise error

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(error):
        write(path, "shop", 4, {"orders": [2]}, {})
    assert [file.name for file in tmp_path.iterdir()] == [NAME]
    assert path.read_bytes() == before

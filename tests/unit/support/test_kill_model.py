"""The model of ``make kills`` distinguishes a correct log from a wrong log."""

from __future__ import annotations

import threading

import pytest

from tests.soak import kill_clients, kills
from tests.soak.kills import ABORTED, Follower, Load, differences

ROWS = list[tuple[int, bytes, bytes]]


@pytest.fixture
def load() -> Load:
    """Two acknowledged records, one key, one commit."""
    made = Load("aiokafka", "127.0.0.1:1", 1, threading.Event())
    made.acknowledged = {0: 0, 3: 1}
    made.latest = {b"key-0": 1}
    made.committed = (2, 3)
    return made


def log(
    monkeypatch: pytest.MonkeyPatch, *, offsets: tuple[int, int] = (2, 2), **topics: ROWS
) -> None:
    """Fake a broker with correct topics, except ``topics``, and both groups' offsets."""
    right: dict[str, ROWS] = {
        "plain": [(0, b"", b"0"), (3, b"", b"1"), (4, b"", b"2")],
        "table": [(0, b"key-0", b"0"), (1, b"key-0", b"1")],
        "out": [(0, b"", b"0"), (1, b"", b"1")],
        "states": [(0, b"key-0", b"0"), (1, b"key-1", b"1")],
    }
    right.update(topics)
    work, commits = offsets
    monkeypatch.setattr(
        kills, "read_all", lambda _at, topic, _level: right[topic.partition("-")[0]]
    )
    monkeypatch.setattr(
        kills,
        "committed_offset",
        lambda _at, group, _topic: work if group.startswith("work") else commits,
    )


def test_a_right_log_has_no_differences(monkeypatch: pytest.MonkeyPatch, load: Load) -> None:
    """A record or a commit past the acknowledged ones is correct: only its answer was lost."""
    for commits in (2, 3):
        log(monkeypatch, offsets=(2, commits))
        assert differences(load, Follower("127.0.0.1:1", [load])) == []


@pytest.mark.parametrize(
    ("topic", "rows", "text"),
    [
        ("plain", [(0, b"", b"0")], "1 acknowledged records lost, 0 there twice"),
        (
            "plain",
            [(0, b"", b"0"), (3, b"", b"1"), (4, b"", b"1")],
            "0 acknowledged records lost, 1",
        ),
        ("table", [(0, b"key-0", b"0")], "1 keys have an older value"),
        ("out", [(0, b"", b"0")], "1 numbers beside the committed offset 2"),
        ("out", [(0, b"", b"0"), (1, b"", b"0"), (2, b"", b"1")], "3 numbers beside"),
        ("states", [(0, b"key-0", b"0"), (1, b"key-1", ABORTED)], "an aborted record was read"),
        ("states", [(0, b"key-0", b"0")], "last values are not the committed ones"),
    ],
)
def test_a_wrong_topic_is_a_difference(
    monkeypatch: pytest.MonkeyPatch, load: Load, topic: str, rows: ROWS, text: str
) -> None:
    """The cases: a lost record, a repeated record, an old value, an aborted record."""
    log(monkeypatch, **{topic: rows})
    found = differences(load, Follower("127.0.0.1:1", [load]))
    assert any(text in line for line in found), found


@pytest.mark.parametrize("commits", [1, 4])
def test_a_commit_outside_the_acknowledged_and_the_tried_one_is_a_difference(
    monkeypatch: pytest.MonkeyPatch, load: Load, commits: int
) -> None:
    """The commit is behind the acknowledged offset, or beyond each offset that was sent."""
    log(monkeypatch, offsets=(2, commits))
    (line,) = differences(load, Follower("127.0.0.1:1", [load]))
    assert "is committed" in line


def test_the_follower_reports_gaps_repetitions_and_aborted_records(load: Load) -> None:
    """Records that arrive in order are not reported."""
    follower = Follower("127.0.0.1:1", [load])
    for offset, value in enumerate((b"0", b"1")):
        follower.take("out-aiokafka", offset, value)
    assert follower.wrong == []
    for offset, value in ((2, b"1"), (3, b"4"), (4, ABORTED)):
        follower.take("out-aiokafka", offset, value)
    assert len(follower.wrong) == 3


def test_a_call_of_librdkafka_that_ignores_its_deadline_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The outcome of such a call is unknown, and its thread does not block the load."""
    monkeypatch.setattr(kill_clients, "CALL_S", 0.0)
    monkeypatch.setattr(kill_clients, "SLACK_S", 0.05)
    client, ended = object.__new__(kill_clients.Librdkafka), threading.Event()
    with pytest.raises(kill_clients.Unknown, match="did not return in time"):
        client._call(ended.wait)
    ended.set()

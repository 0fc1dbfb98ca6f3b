"""Answers from names and counts alone, valid for stock members and ours after any failure."""

from __future__ import annotations

import json
import zlib
from types import SimpleNamespace
from typing import Any

from faust_assigner.app.rebalance.answers import PROTOCOL_VERSION
from faust_assigner.app.rebalance.fallback import deal, plain_metadata


def member(url: str, subscription: Any) -> Any:
    """Return a member's metadata as aiokafka decodes it."""
    return SimpleNamespace(subscription=subscription, user_data=json.dumps({"url": url}).encode())


def partitions_of(topic: str) -> set[int]:
    """Return four, four, three or no partitions; fail for an unknown topic."""
    counts = {"orders": 4, "shop-totals-changelog": 4, "clicks": 3, "empty": 0}
    if topic not in counts:
        raise ValueError(topic)
    return set(range(counts[topic]))


def test_each_member_has_a_whole_answer() -> None:
    """Only changelogs have copies; empty, unknown and non-text topics are left out."""
    cluster: Any = SimpleNamespace(partitions_for_topic=partitions_of)
    log = "shop-totals-changelog"
    said = {
        "b": member("http://b", ["orders", log, "clicks"]),
        "a": member("http://a", ("orders", log, "empty", "lost", 7)),
        "c": member("http://c", None),
    }
    answers = deal(cluster, said, replicas=1)
    assert {m: (answer.version, answer.assignment) for m, answer in answers.items()} == {
        "a": (PROTOCOL_VERSION, [("orders", [0, 2]), (log, [0, 2, 1, 3])]),
        "b": (PROTOCOL_VERSION, [("clicks", [0, 1, 2]), ("orders", [1, 3]), (log, [1, 3, 0, 2])]),
        "c": (PROTOCOL_VERSION, []),
    }
    assert json.loads(zlib.decompress(answers["b"].user_data)) == {
        "assignment": {
            "actives": {"clicks": [0, 1, 2], "orders": [1, 3], log: [1, 3]},
            "standbys": {log: [0, 2]},
        },
        "url": "http://b",
        "changelog_distribution": {},
        "external_topic_distribution": {},
        "topic_groups": {"clicks": 0, "orders": 1, log: 1},
    }
    assert json.loads(zlib.decompress(answers["c"].user_data))["url"] == "http://c"


def test_plain_metadata_has_the_url_and_no_claim() -> None:
    """The leader takes the member for a new member."""
    app = SimpleNamespace(conf=SimpleNamespace(canonical_url="http://w:6066"))
    assert json.loads(plain_metadata(app)) == {
        "assignment": {"actives": {}, "standbys": {}},
        "url": "http://w:6066",
        "changelog_distribution": {},
        "external_topic_distribution": {},
        "topic_groups": {},
    }


def test_each_standby_of_an_app_is_dealt_by_its_setting() -> None:
    """Two standbys are on two other members; a topic that the client does not know is left out."""
    log = "shop-totals-changelog"
    cluster: Any = SimpleNamespace(
        partitions_for_topic=lambda topic: {0, 1, 2, 3} if topic == log else None
    )
    said = {name: member(f"http://{name}", [log, "young"]) for name in "dacb"}
    answers = deal(cluster, said, replicas=2)
    assert list(answers) == ["a", "b", "c", "d"]
    assert {m: answer.assignment for m, answer in answers.items()} == {
        "a": [(log, [0, 2, 3])],
        "b": [(log, [1, 0, 3])],
        "c": [(log, [2, 0, 1])],
        "d": [(log, [3, 1, 2])],
    }
    assert json.loads(zlib.decompress(answers["d"].user_data))["assignment"] == {
        "actives": {log: [3]},
        "standbys": {log: [1, 2]},
    }
    assert deal(cluster, {}, replicas=2) == {}

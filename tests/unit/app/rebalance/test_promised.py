"""Promised partitions of a cooperative group: the member's next metadata names them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from faust_assigner.wire.join import JoinData, decode_join
from tests.support.faust_group import WireGroup, make_app
from tests.unit.app.tables.test_disk import rocksdb_app, write

LOG = "shop-totals-changelog"
TOPICS = {"orders": 6, LOG: 6}


def grown(newcomer: Any) -> WireGroup:
    """Return two members with partitions, and ``newcomer`` after the first of two rounds."""
    found = WireGroup(TOPICS)
    for name in "ab":
        found.add(name, make_app(f"http://{name}", tables=["totals"]), TOPICS)
    found.rebalance()
    for app in found.apps.values():
        app.assignor.holds = True
    found.add("c", newcomer, TOPICS)
    found.rebalance("a")
    return found


def word(found: WireGroup, name: str) -> JoinData:
    """Return a member's current metadata."""
    return decode_join(found.apps[name].assignor.metadata(TOPICS).user_data, sorted(TOPICS))


def test_what_was_promised_is_said_and_then_given() -> None:
    """The promise is two of six partitions; the next leader knows it from the metadata."""
    found = grown(make_app("http://c", tables=["totals"]))
    before, said = found.actives("orders"), word(found, "c")
    assert "c" not in before.values()
    assert {topic: len(list(numbers)) for topic, numbers in said.promised.items()} == {
        "orders": 2,
        LOG: 2,
    }
    assert (said.among, said.actives) == (3, {})
    found.rebalance("b")
    assert {p for p, name in found.actives("orders").items() if name == "c"} == set(
        said.promised["orders"]
    )
    assert word(found, "c").promised == {}


def test_files_of_what_was_promised_count_until_it_is_given(tmp_path: Path) -> None:
    """Other files do not count: they belong to partitions revoked long ago."""
    app = rocksdb_app(tmp_path, "totals", replicas=1)
    app.conf.canonical_url = "http://c"
    for partition in range(TOPICS[LOG]):
        write(app, "totals", partition)
    found = grown(app)
    said = word(found, "c")
    assert said.promised[LOG]
    assert list(said.on_disk[LOG]) == list(said.promised[LOG])
    found.rebalance("b")
    assert word(found, "c").on_disk == {}

"""Pending offsets of a transaction count wherever committed offsets count."""

from __future__ import annotations

from pathlib import Path

import pytest

from faust_assigner.broker import limits
from faust_assigner.broker.housekeeping import expire
from faust_assigner.broker.storage.store import StoreFailed
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import CommitOffsets, DeleteGroup
from faust_assigner.coordinator.offsets import Committed
from tests.unit.broker.test_transactions import Bench

PLACE = ("t", 0)
DAY_MS = 86_400_000


def waiting(folder: Path | None = None) -> Bench:
    """Return a bench with a transaction that has offset 7 for the group."""
    bench = Bench(folder)
    bench.begin()
    bench.commit(7)
    return bench


def pending_on_disk(bench: Bench) -> int:
    """Return the number of pending offsets in the store."""
    return len(list(bench.node.store.scan(b"w")))


def test_pending_offsets_count_against_the_limit_of_a_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A transaction cannot exceed MAX_OFFSETS_PER_GROUP."""
    monkeypatch.setattr(limits, "MAX_OFFSETS_PER_GROUP", 2)
    bench = waiting()
    commit = bench.node.groups.books.commit
    assert commit("g", {("t", 1): Committed(1)}) is Code.NONE
    assert commit("g", {("u", 1): Committed(1)}) is Code.INVALID_REQUEST
    bench.node.close()


def test_a_group_with_pending_offsets_alone_is_kept() -> None:
    """Its transaction may commit later; after an abort the next cleanup removes the group."""
    bench = waiting()
    bench.node.groups.ask("g", CommitOffsets, lambda reply: None)
    sum(expire(bench.node))
    assert bench.node.groups.get("g") is not None
    assert bench.end(commits=False) is Code.NONE
    sum(expire(bench.node))
    assert bench.node.groups.get("g") is None
    bench.node.close()


def test_an_offset_that_a_transaction_may_change_does_not_expire() -> None:
    """The offset's age counts after the end of the transaction; each expired offset is counted."""
    bench = Bench()
    bench.node.groups.ask("g", CommitOffsets, lambda reply: None)
    assert (
        bench.node.groups.books.commit("g", {PLACE: Committed(5, committed_at_ms=0)}) is Code.NONE
    )
    bench.begin()
    bench.commit(7)
    bench.now += 30 * DAY_MS
    assert sum(expire(bench.node)) == 0
    assert bench.offset() == 5
    assert bench.end(commits=False) is Code.NONE
    assert sum(expire(bench.node)) == 1
    assert bench.offset() == -1
    assert bench.node.counters["offsets_expired"] == 1
    bench.node.close()


def test_a_deleted_topic_takes_the_offsets_of_open_transactions_along() -> None:
    """A new topic of the same name must not begin at the old topic's offset."""
    bench = waiting()
    list(bench.node.groups.books.topic_deleted("t"))
    assert pending_on_disk(bench) == 0
    assert list(bench.node.groups.books.pending) == [], "the group has none any more"
    assert bench.end(commits=True) is Code.NONE
    assert bench.offset() == -1
    bench.node.close()


def test_another_topics_deletion_leaves_the_offsets_of_open_transactions() -> None:
    """Only the deleted topic's offsets are removed."""
    bench = waiting()
    bench.node.groups.books.store_pending("g", bench.of("tx").producer_id, {("u", 0): Committed(1)})
    list(bench.node.groups.books.topic_deleted("u"))
    assert bench.end(commits=True) is Code.NONE
    assert (bench.offset(), len(bench.node.groups.books.offsets("g"))) == (7, 1)
    bench.node.close()


def test_a_deleted_group_leaves_no_pending_offset(tmp_path: Path) -> None:
    """No offset stays in memory or on disk, where the next start would find the group again."""
    bench = waiting(tmp_path)
    replies: list[Code] = []
    bench.node.groups.ask("g", CommitOffsets, lambda reply: None)
    bench.node.groups.ask("g", DeleteGroup, lambda reply: replies.append(reply.error))
    assert replies == [Code.NONE]
    assert pending_on_disk(bench) == 0
    bench.node.close()
    again = Bench(tmp_path)
    assert again.node.groups.get("g") is None
    assert again.end(commits=True) is Code.NONE
    assert again.offset() == -1
    again.node.close()


def test_a_transaction_does_not_bring_back_the_offsets_of_a_deleted_group() -> None:
    """The transaction goes on and commits in the same life of the broker."""
    bench = waiting()
    bench.node.groups.ask("g", CommitOffsets, lambda reply: None)
    bench.node.groups.ask("g", DeleteGroup, lambda reply: None)
    books = bench.node.groups.books
    assert (list(books), books.topics(), books.has_any("g")) == ([], (), False)
    assert bench.end(commits=True) is Code.NONE
    assert bench.offset() == -1
    bench.node.close()


def test_a_commit_outside_of_the_transaction_counts_at_once_and_stays() -> None:
    """The commit also holds before a restart, and only for its own partition."""
    bench = waiting()
    bench.node.groups.books.store_pending("g", bench.of("tx").producer_id, {("t", 1): Committed(8)})
    assert bench.node.groups.books.commit("g", {PLACE: Committed(99)}) is Code.NONE
    assert bench.offset() == 99
    assert bench.end(commits=True) is Code.NONE
    entries = bench.node.groups.books.offsets("g").entries
    assert {key: entry.offset for key, entry in entries.items()} == {PLACE: 99, ("t", 1): 8}
    bench.node.close()


def test_a_later_offset_of_a_transaction_counts_after_a_commit_outside() -> None:
    """The commit before it no longer replaces the transaction's newer offset."""
    bench = waiting()
    assert bench.node.groups.books.commit("g", {PLACE: Committed(99)}) is Code.NONE
    bench.commit(100)
    assert bench.end(commits=True) is Code.NONE
    assert bench.offset() == 100
    bench.node.close()


def test_the_end_of_one_transaction_leaves_the_offsets_of_another() -> None:
    """Two producers of a group have their own pending offsets."""
    bench = waiting()
    bench.begin("other")
    bench.node.groups.books.store_pending(
        "g", bench.of("other").producer_id, {("t", 1): Committed(3)}
    )
    assert bench.end(commits=False) is Code.NONE
    assert bench.node.groups.books.pending.is_pending("g", ("t", 1))
    assert bench.end("other", commits=True) is Code.NONE
    assert list(bench.node.groups.books.offsets("g").entries) == [("t", 1)]
    assert list(bench.node.groups.books.pending) == []
    bench.node.close()


def test_each_offset_of_a_transaction_keeps_its_place_over_a_restart(tmp_path: Path) -> None:
    """Two of three are replaced by a later commit outside; each group has its own offsets."""
    bench = Bench(tmp_path)
    for name in "uvw":
        bench.node.catalogue.create(name, 6, {})
    bench.begin(partitions=(0, 1))
    bench.reopen("tx", group="h")
    books, producer_id = bench.node.groups.books, bench.of("tx").producer_id
    inside = {("t", 0): Committed(10), ("t", 1): Committed(11), ("u", 5): Committed(12)}
    assert books.store_pending("g", producer_id, inside) is Code.NONE
    other = {("t", 1): Committed(21, 3, "note"), ("v", 0): Committed(22)}
    assert books.store_pending("h", producer_id, other) is Code.NONE
    outside = {("t", 0): Committed(90), ("u", 5): Committed(95), ("w", 0): Committed(96)}
    assert books.commit("g", outside) is Code.NONE
    bench.node.close()
    bench = Bench(tmp_path)
    assert bench.end(commits=True) is Code.NONE
    after = {
        "g": {("t", 0): 90, ("t", 1): 11, ("u", 5): 95, ("w", 0): 96},
        "h": {("t", 1): 21, ("v", 0): 22},
    }
    for _ in range(2):
        books = bench.node.groups.books
        entries = {group: books.offsets(group).entries for group in ("g", "h")}
        assert {
            group: {key: entry.offset for key, entry in found.items()}
            for group, found in entries.items()
        } == after
        assert entries["h"]["t", 1] == Committed(21, 3, "note")
        assert pending_on_disk(bench) == 0
        bench.node.close()
        bench = Bench(tmp_path)
    bench.node.close()


def test_a_topic_that_is_deleted_after_a_restart_takes_pending_offsets_along(
    tmp_path: Path,
) -> None:
    """The group had no committed offset before its transaction."""
    bench = waiting(tmp_path)
    bench.node.close()
    bench = Bench(tmp_path)
    assert list(bench.node.groups.books.topic_deleted("t")) == ["g"]
    assert bench.end(commits=True) is Code.NONE
    assert (bench.offset(), pending_on_disk(bench)) == (-1, 0)
    bench.node.close()


def test_a_start_deletes_the_offsets_of_topics_that_do_not_exist(tmp_path: Path) -> None:
    """The broker was killed after the deletion of a topic, before the deletion of its offsets."""
    bench = waiting(tmp_path)
    topic = bench.node.catalogue.create("u", 1, {})
    books, producer_id = bench.node.groups.books, bench.of("tx").producer_id
    assert books.commit("g", {("t", 1): Committed(1), ("u", 0): Committed(2)}) is Code.NONE
    assert books.store_pending("g", producer_id, {("u", 0): Committed(3)}) is Code.NONE
    bench.node.catalogue.delete(topic)
    bench.node.close()
    bench = Bench(tmp_path)
    bench.node.catalogue.create("u", 1, {})
    assert bench.end(commits=True) is Code.NONE
    entries = bench.node.groups.books.offsets("g").entries
    assert {key: entry.offset for key, entry in entries.items()} == {("t", 0): 7, ("t", 1): 1}
    assert len(list(bench.node.store.scan(b"o"))) == 2
    bench.node.close()


@pytest.mark.parametrize("ended", [False, True])
def test_a_new_topic_gets_no_offsets_of_a_deleted_topic_at_a_restart(
    tmp_path: Path, ended: bool
) -> None:
    """The broker stopped during the deletion of the offsets, or the store had refused the deletion."""
    bench = waiting(tmp_path)
    books, store = bench.node.groups.books, bench.node.store
    for group in ("g", "h"):
        assert books.commit(group, {("t", 1): Committed(1)}) is Code.NONE
    bench.node.catalogue.delete(bench.topic)
    with pytest.MonkeyPatch.context() as patched:
        if ended:
            patched.setattr(store, "write", _full)
        deletion = books.topic_deleted("t")
        deleted = list(deletion) if ended else [next(deletion)]
    assert len(deleted) == 1 + ended
    bench.node.catalogue.create("t", 2, {})
    bench.node.close()
    bench = Bench(tmp_path)
    assert [dict(bench.node.groups.books.offsets(group).entries) for group in "gh"] == [{}, {}]
    assert pending_on_disk(bench) == 0
    bench.node.close()


def _full(*arguments: object, **named: object) -> None:
    raise StoreFailed("No space left on device")

"""The checks of a start: the effect of an accepted loss, and the facts for the next start."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from faust_assigner.broker.node import Node
from faust_assigner.broker.settings import Settings
from faust_assigner.broker.storage import salvage
from faust_assigner.broker.storage import write_audit as audit_module
from faust_assigner.broker.storage.entries import OFFSET
from faust_assigner.broker.storage.log import PartitionLog
from faust_assigner.broker.storage.reads import available
from faust_assigner.broker.storage.records import parse_batch
from faust_assigner.broker.storage.recovery import StoreDamaged, examine
from faust_assigner.broker.storage.rocks_store import RocksStore
from faust_assigner.broker.storage.write_audit import WriteAudit, boot_id
from tests.support.clients.raw_client import batch

ACCEPT = {"log.recovery.accept.loss": "true"}
CHECK = {"log.recovery.check.batches": "true"}
NO_CHECK = {"log.recovery.check.batches": "false"}


def started(folder: Path, **settings: str) -> Node:
    """Start a broker on this data, without its sockets."""
    return Node(
        Settings.parse({name.replace("_", "."): value for name, value in settings.items()}), folder
    )


def log_of(node: Node) -> PartitionLog:
    """Return partition 0 of "t"."""
    log = node.catalogue.partition("t", 0)
    assert log is not None
    return log


def with_records(folder: Path, count: int) -> list[tuple[bytes, bytes]]:
    """Write this many records to "t"; return the keys of each batch and of its index entry."""
    node = started(folder)
    log = node.catalogue.create("t", 1, {}).partitions[0]
    for _ in range(count):
        data = batch()
        log.append(parse_batch(data), data, 0)
    keys = [
        (b"b" + log.place + OFFSET.pack(n), b"x" + log.place + OFFSET.pack(n)) for n in range(count)
    ]
    node.close()
    return keys


def without(folder: Path, *keys: bytes) -> None:
    """Remove keys from a store, as damage would."""
    store = RocksStore(folder)
    store.write((), keys)
    store.close()


def test_a_broken_batch_is_accepted_once_and_for_all(tmp_path: Path) -> None:
    """The batch's index entry is removed, and the hole is explained: no later start fails."""
    keys = with_records(tmp_path, 3)
    without(tmp_path, keys[1][0])
    with pytest.raises(StoreDamaged, match="t-0: offsets 1 to 1"):
        started(tmp_path, **CHECK)
    started(tmp_path, **CHECK, **ACCEPT).close()
    again = started(tmp_path, **CHECK)
    assert again.store.get(keys[1][1]) is None
    assert log_of(again).holes == ((1, 2),)
    again.close()


def test_without_the_check_a_broken_batch_is_not_looked_for(tmp_path: Path) -> None:
    """The check of all records takes a while; a reader will find the batch."""
    keys = with_records(tmp_path, 3)
    without(tmp_path, keys[1][0])
    started(tmp_path, **NO_CHECK).close()


def test_after_a_copy_of_the_readable_data_missing_batches_are_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy leaves out batches whose index entries it keeps; a reader would fail there."""
    keys = with_records(tmp_path, 3)
    without(tmp_path, keys[1][0])
    monkeypatch.setattr(salvage, "has_begun", lambda folder: True)
    with pytest.raises(StoreDamaged, match="t-0: offsets 1 to 1"):
        started(tmp_path, **NO_CHECK)


def test_a_power_loss_excuses_the_end_of_a_partition(tmp_path: Path) -> None:
    """No synced write is missing: unsynced writes may be lost with the machine."""
    with_records(tmp_path, 1)
    node = started(tmp_path)
    store: Any = node.store
    store.write_audit.same_boot = False
    store.write_audit.ends[log_of(node).place] = 5
    store.write_audit.note_end(log_of(node).place, 5)
    examine(store, node.catalogue, Settings.parse({}))
    assert log_of(node).end_offset == 1
    node.close()
    started(tmp_path).close()  # the end before the power loss is no longer required


def test_a_power_loss_excuses_no_synced_write(tmp_path: Path) -> None:
    """With the missing writes, the missing ends are named, too."""
    with_records(tmp_path, 1)
    node = started(tmp_path)
    store: Any = node.store
    store.write_audit.same_boot, store.lost_writes = False, 2
    store.write_audit.ends[log_of(node).place] = 5
    with pytest.raises(StoreDamaged) as refused:
        examine(store, node.catalogue, Settings.parse({}))
    assert str(refused.value).startswith(
        "the store is damaged: 2 acknowledged writes are missing; t-0: offsets 1 to 4. Set "
    )
    node.close()


def test_a_kill_excuses_no_end(tmp_path: Path) -> None:
    """The machine kept running, so it kept all writes."""
    with_records(tmp_path, 1)
    node = started(tmp_path)
    store: Any = node.store
    store.write_audit.ends[log_of(node).place] = 5
    with pytest.raises(StoreDamaged, match="offsets 1 to 4"):
        examine(store, node.catalogue, Settings.parse({}))
    node.close()


@pytest.mark.parametrize("starts", [1, 2])
def test_an_end_that_an_earlier_run_wrote_is_still_watched(tmp_path: Path, starts: int) -> None:
    """Each start notes the ends of all partitions, even without appends."""
    keys = with_records(tmp_path, 3)
    for _ in range(starts):
        started(tmp_path).close()
    without(tmp_path, *keys[2])
    with pytest.raises(StoreDamaged, match="t-0: offsets 2 to 2"):
        started(tmp_path)


def test_the_end_of_a_log_whose_records_were_all_deleted_is_watched_too(tmp_path: Path) -> None:
    """The log is empty, but its next record must have the next offset."""
    with_records(tmp_path, 3)
    node = started(tmp_path)
    log_of(node).trim(3)
    start = b"s" + log_of(node).place
    node.close()
    started(tmp_path).close()
    without(tmp_path, start)
    with pytest.raises(StoreDamaged, match="t-0: offsets 0 to 2"):
        started(tmp_path)


def test_of_two_sound_heads_the_later_one_counts(tmp_path: Path) -> None:
    """The place of the head in the file does not matter."""
    for last in (8, 9):
        first = WriteAudit(tmp_path)
        for writes in range(last - 1, last + 1):
            first.note(writes)
        first.close()
        again = WriteAudit(tmp_path)
        assert again.writes == last
        again.note(1)
        again.note(1)
        again.close()


def test_what_is_synced_is_written_down_at_once(tmp_path: Path) -> None:
    """The power may fail before the next write."""
    first = WriteAudit(tmp_path)
    first.note(5)
    first.note_synced(3)
    again = WriteAudit(tmp_path)
    assert (again.writes, again.synced) == (5, 3)
    for each in (first, again):
        each.close()


def test_a_wait_for_the_disk_that_ends_late_takes_nothing_back(tmp_path: Path) -> None:
    """An earlier wait covers fewer writes than a later wait and than the newer writes."""
    first = WriteAudit(tmp_path)
    seen = []
    for step, writes in (
        ("note", 5),
        ("sync", 3),
        ("note", 8),
        ("sync", 7),
        ("sync", 4),
        ("sync", 9),
    ):
        (first.note if step == "note" else first.note_synced)(writes)
        seen.append((first.writes, first.synced))
    assert seen == [(5, 0), (5, 3), (8, 3), (8, 7), (8, 7), (9, 9)]
    first.note(6)
    assert (first.writes, first.synced) == (6, 6), "a store that was opened anew after a loss"
    first.close()


@pytest.mark.parametrize(("same_boot", "lacks"), [(True, [0, 0, 1, 8]), (False, [0, 0, 0, 5])])
def test_how_many_writes_are_missing_depends_on_a_restart_of_the_machine(
    same_boot: bool, lacks: list[int], tmp_path: Path
) -> None:
    """Without a restart all writes count, with a restart only the synced writes; more is no loss."""
    first = WriteAudit(tmp_path)
    first.note(8)
    first.note_synced(5)
    first.close()
    again = WriteAudit(tmp_path)
    again.same_boot = same_boot
    assert [again.count_lost_writes(writes) for writes in (9, 8, 7, 0)] == lacks
    again.close()


def test_an_accepted_loss_of_synced_writes_is_not_missed_again(tmp_path: Path) -> None:
    """The next power loss is compared with the writes of the store since then."""
    first = WriteAudit(tmp_path)
    first.note_synced(9)
    first.restart(4, {})
    again = WriteAudit(tmp_path)
    assert (again.writes, again.synced) == (4, 4)
    for each in (first, again):
        each.close()


def test_a_start_forgets_the_ends_of_partitions_that_are_gone(tmp_path: Path) -> None:
    """Their slots in the file are reused; an old end in a slot is never read again."""
    first = WriteAudit(tmp_path)
    places = [bytes([number]) * 20 for number in range(4)]
    for place in places[:3]:
        first.note_end(place, 9)
    first.restart(1, {places[2]: 5})
    first.note_end(places[3], 7)
    again = WriteAudit(tmp_path)
    assert again.ends == {places[2]: 5, places[3]: 7}
    for each in (first, again):
        each.close()


def test_a_stop_puts_the_witness_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine may be switched off next."""
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    write_audit = WriteAudit(tmp_path)
    file = write_audit._file
    write_audit.close()
    assert synced == [file]


def test_a_stop_writes_the_map_to_the_file_before_it_syncs_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some systems do not write a map with its file."""
    steps: list[str] = []
    write_audit = WriteAudit(tmp_path)
    whole = write_audit._map
    write_audit._map = cast(
        Any,
        SimpleNamespace(
            flush=lambda: steps.append("map"), close=lambda: (steps.append("close"), whole.close())
        ),
    )
    monkeypatch.setattr(os, "fsync", lambda _: steps.append("file"))
    write_audit.close()
    assert steps == ["map", "file", "close"]


def test_a_torn_entry_of_the_witness_hides_no_other(tmp_path: Path) -> None:
    """A kill during a write loses the check of a single partition."""
    first = WriteAudit(tmp_path)
    places = [bytes([number]) * 20 for number in range(1, 4)]
    for place in places:
        first.note_end(place, 9)
    first._map[first._slots[places[0]] + 25] ^= 0xFF
    again = WriteAudit(tmp_path)
    assert again.ends == dict.fromkeys(places[1:], 9)
    for each in (first, again):
        each.close()


def test_a_log_whose_only_batch_was_lost_goes_on_behind_it(tmp_path: Path) -> None:
    """No index entry has the end of the log; the accepted loss has it at each later start."""
    keys = with_records(tmp_path, 1)
    without(tmp_path, keys[0][0])
    started(tmp_path, **CHECK, **ACCEPT).close()
    again = started(tmp_path, **CHECK)
    assert (log_of(again).end_offset, available(log_of(again), 0)) == (1, 0)
    again.close()


def test_every_loss_of_every_partition_is_named_and_accepted_together(tmp_path: Path) -> None:
    """A partition has two broken batches and a hole, a second one a hole, a third one is sound."""
    node = started(tmp_path)
    logs = node.catalogue.create("t", 3, {}).partitions
    for log in logs:
        for _ in range(6):
            data = batch()
            log.append(parse_batch(data), data, 0)
    gone = [
        *(logs[0].batch_key(base) for base in (0, 2)),
        *(key(4) for key in (logs[0].batch_key, logs[0].index_key)),
        *(key(3) for key in (logs[2].batch_key, logs[2].index_key)),
    ]
    node.close()
    without(tmp_path, *gone)
    with pytest.raises(StoreDamaged) as refused:
        started(tmp_path, **CHECK)
    assert str(refused.value) == (
        "the store is damaged: t-0: offsets 4 to 4; t-2: offsets 3 to 3; t-0: offsets 0 to 0; "
        "t-0: offsets 2 to 2. Set log.recovery.accept.loss=true to start without this data"
    )
    started(tmp_path, **CHECK, **ACCEPT).close()
    again = started(tmp_path, **CHECK)
    topic = again.catalogue.get("t")
    assert topic is not None
    assert [list(log.index.bases) for log in topic.partitions] == [
        [1, 3, 5],
        [0, 1, 2, 3, 4, 5],
        [0, 1, 2, 4, 5],
    ]
    assert [log.end_offset for log in topic.partitions] == [6, 6, 6]
    again.close()


def test_an_entry_of_the_witness_without_a_checksum_hides_no_later_one(tmp_path: Path) -> None:
    """Only an entry of zeros ends the list."""
    first = WriteAudit(tmp_path)
    places = [bytes([number]) * 20 for number in range(1, 4)]
    for place in places:
        first.note_end(place, 0x0901)
    slots = [first._slots[place] for place in places]
    first._map[slots[0] + 28 : slots[0] + 32] = bytes(4)
    first._map[slots[1] : slots[1] + 20] = bytes(20)
    again = WriteAudit(tmp_path)
    assert again.ends == {places[2]: 0x0901}
    again.restart(4, {places[1]: 6})
    assert again.ends == {}
    third = WriteAudit(tmp_path)
    assert (third.ends, third.writes) == ({places[1]: 6}, 4)
    for each in (first, again, third):
        each.close()


@pytest.mark.parametrize(
    ("text", "boot"),
    [
        (
            "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0\n",
            bytes.fromhex("0f1e2d3c4b5a69788796a5b4c3d2e1f0"),
        ),
        ("no such thing", bytes(16)),
        (None, bytes(16)),
    ],
)
def test_the_boot_of_a_machine_has_an_id_where_the_system_tells_it(
    text: str | None, boot: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zeros stand for an unknown boot; such a machine counts as restarted."""
    file = tmp_path / "boot_id"
    if text is not None:
        file.write_text(text)
    monkeypatch.setattr(audit_module, "BOOT_ID", file)
    assert boot_id() == boot
    for _ in range(2):
        audit = WriteAudit(tmp_path)
        audit.note(3)
        audit.close()
    again = WriteAudit(tmp_path)
    assert again.same_boot is any(boot)
    again.close()


def test_a_full_disk_does_not_keep_the_files_of_a_witness_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failure of the last write is ignored: the page cache has the contents."""
    audit = WriteAudit(tmp_path)

    def full(_: int) -> None:
        raise OSError("no space")

    monkeypatch.setattr(os, "fsync", full)
    audit.close()
    assert audit._map.closed
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(audit._file)

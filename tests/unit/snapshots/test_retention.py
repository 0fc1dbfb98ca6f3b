"""gc, verify and trust over several topics, partitions and ages, on an in-memory storage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.snapshots import retention, trust, verification
from faust_assigner.snapshots.catalog import Catalog, Found, SnapshotCorruptError, newest_first
from faust_assigner.snapshots.changelog import Changelog, Extent
from faust_assigner.snapshots.manifest import (
    MANIFEST_NAME,
    Manifest,
    SnapshotError,
    format_time_ms,
    snapshot_id,
)
from faust_assigner.snapshots.retention import Removal, collect_garbage
from faust_assigner.snapshots.sst import OFFSET_KEY, SstFile
from faust_assigner.snapshots.storage import Entry, open_storage
from faust_assigner.snapshots.trust import Judge
from faust_assigner.snapshots.verification import Verdict, verify

NOW_MS = 1_800_000_000_000
OLD_MS = NOW_MS - 7_200_000


class Storage:
    """Files by path with their times; ``acts`` are removals and writes in order."""

    url = "made-up"

    def __init__(self) -> None:
        self.files: dict[str, tuple[bytes, int | None]] = {}
        self.acts: list[Any] = []

    def put(self, path: str, data: bytes = b"part", at: int | None = OLD_MS) -> None:
        """Add a file."""
        self.files[path] = data, at

    def list(self, folder: str) -> list[Entry]:
        """Return the entries of a folder."""
        prefix = f"{folder}/" if folder else ""
        found: dict[str, Entry] = {}
        for path, (data, at) in self.files.items():
            if path.startswith(prefix):
                name, slash, _ = path.removeprefix(prefix).partition("/")
                found[name] = (
                    Entry(name, True, 0, None) if slash else Entry(name, False, len(data), at)
                )
        return [found[name] for name in sorted(found)]

    def read(self, path: str) -> bytes:
        """Return the file's content."""
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.files[path][0]

    def write(self, path: str, data: bytes) -> None:
        """Write the file."""
        self.acts.append(("write", path))
        self.put(path, data)

    def delete(self, path: str) -> None:
        """Delete the file."""
        self.acts.append(("delete", path))
        self.files.pop(path, None)

    def delete_folder(self, folder: str) -> None:
        """Delete the folder."""
        self.acts.append(("delete folder", folder))
        for path in [path for path in self.files if path.startswith(f"{folder}/")]:
            del self.files[path]

    def local_path(self, path: str) -> Path | None:
        """Return None: no file is local."""
        return None

    def download(self, path: str, local: Path) -> None:
        """Copy the file."""
        local.write_bytes(self.read(path))


class Shelf:
    """A catalog in an in-memory storage."""

    def __init__(self) -> None:
        self.storage = Storage()
        self.catalog = Catalog(self.storage)  # type: ignore[arg-type]

    def snapshot(
        self,
        offset: int,
        *files: str,
        topic: str = "t",
        partition: int = 0,
        age_s: int = 0,
        topic_id: str | None = None,
        size: int = 4,
    ) -> Manifest:
        """Publish a snapshot up to ``offset`` with these files; its own files are written."""
        identity = snapshot_id(offset)
        names = files or (f"{offset}.sst",)
        manifest = Manifest(
            topic,
            partition,
            identity,
            offset,
            1,
            size * len(names),
            "ab" * 32,
            format_time_ms(NOW_MS - age_s * 1000),
            names,
            format_version=2,
            topic_id=topic_id,
            layers=(len(names),),
        )
        folder = f"{topic}/{partition}/{identity}"
        for name in names:
            if "/" not in name:
                self.storage.put(f"{folder}/{name}", b"x" * size)
        self.storage.put(f"{folder}/{MANIFEST_NAME}", manifest.to_json())
        return manifest

    def gc(self, **how: Any) -> list[tuple[str, str, int]]:
        """Return the removals."""
        found = collect_garbage(self.catalog, now_ms=NOW_MS, **how)
        assert all(isinstance(each, Removal) for each in found)
        return [(each.path, each.reason, each.size) for each in found]

    def seen(self, topic: str = "t", partition: int = 0) -> list[int]:
        """Return the offsets of the visible snapshots, newest first."""
        return [each.next_offset for each in self.catalog.snapshots(topic, partition)]


@pytest.fixture
def shelf() -> Shelf:
    """Return an empty shelf."""
    return Shelf()


def at(offset: int, partition: int = 0, topic: str = "t") -> str:
    """Return the folder of a snapshot."""
    return f"{topic}/{partition}/{snapshot_id(offset)}"


# -- retention


def test_each_partition_keeps_its_own_newest_snapshots(shelf: Shelf) -> None:
    """Age decides; the reasons count newer snapshots, and unnamed topics keep all snapshots."""
    for partition, offsets in ((0, (1, 2, 3, 4)), (1, (8, 9))):
        for rank, offset in enumerate(offsets):
            shelf.snapshot(offset, partition=partition, age_s=100 - rank)
    shelf.snapshot(5, topic="u"), shelf.snapshot(6, topic="u")
    assert shelf.gc(keep=2, topics=["t"]) == [
        (at(1), "3 newer snapshots", 4),
        (at(2), "2 newer snapshots", 4),
    ]
    assert (shelf.seen(), shelf.seen(partition=1), shelf.seen("u")) == ([4, 3], [9, 8], [6, 5])
    assert shelf.gc(keep=1) == [
        (at(3), "1 newer snapshots", 4),
        (at(8, 1), "1 newer snapshots", 4),
        (at(5, topic="u"), "1 newer snapshots", 4),
    ]


def test_a_snapshot_of_a_clock_that_was_ahead_counts_as_the_oldest(shelf: Shelf) -> None:
    """Workers refuse it; with its time it would stay for good, and a sound snapshot would go."""
    for offset, age_s in ((1, 90), (2, -86_400), (3, 30), (4, -3_600)):
        shelf.snapshot(offset, age_s=age_s, topic_id="now")
    shelf.gc(keep=2, grace_ms=3_600_000)
    assert shelf.seen() == [4, 3]
    shelf.gc(keep=1, grace_ms=3_599_999)
    assert shelf.seen() == [3]


def test_old_snapshots_go_though_few_are_newer(shelf: Shelf) -> None:
    """The newest snapshot stays; a maximum age of 0 is valid."""
    for offset, age_s in ((1, 90), (2, 61), (3, 60)):
        shelf.snapshot(offset, age_s=age_s)
    assert shelf.gc(keep=9, max_age_ms=60_000) == [(at(1), "90 s old", 4), (at(2), "61 s old", 4)]
    shelf.snapshot(4, age_s=10)
    assert shelf.gc(keep=9, max_age_ms=0) == [(at(3), "60 s old", 4)]
    assert shelf.seen() == [4]


def test_snapshots_of_an_earlier_topic_go_first(shelf: Shelf) -> None:
    """Only the newest snapshot of the partition stays."""
    shelf.snapshot(5, age_s=30, topic_id="old")
    shelf.snapshot(6, age_s=20, topic_id="old")
    shelf.snapshot(2, age_s=10, topic_id="new")
    (first, second) = shelf.gc(keep=3)
    assert [first[0], second[0]] == [at(5), at(6)]
    assert "the changelog has new" in first[1]
    assert shelf.seen() == [2]


def test_files_that_a_kept_snapshot_lists_stay(shelf: Shelf) -> None:
    """The files stay after their own snapshot is removed; manifests are removed before files."""
    shelf.snapshot(1, "a.sst", "b.sst", age_s=30)
    shelf.snapshot(2, f"{snapshot_id(1)}/a.sst", "c.sst", age_s=20)
    shelf.snapshot(3, f"{snapshot_id(1)}/a.sst", "d.sst", age_s=10)
    found = shelf.gc(keep=1)
    assert found == [(at(1), "2 newer snapshots", 4), (at(2), "1 newer snapshots", 4)]
    assert shelf.storage.acts == [
        ("delete", f"{at(2)}/{MANIFEST_NAME}"),
        ("delete", f"{at(1)}/{MANIFEST_NAME}"),
        ("delete", f"{at(1)}/b.sst"),
        ("delete folder", at(2)),
    ]
    assert set(shelf.storage.files) == {
        f"{at(1)}/a.sst",
        f"{at(3)}/d.sst",
        f"{at(3)}/{MANIFEST_NAME}",
    }
    assert shelf.gc(keep=1) == [], "a folder whose files are listed is no leftover"
    shelf.storage.put(f"{at(1)}/lost.sst", b"lost!")
    shelf.storage.put(f"{at(1)}/a.sst", b"used", NOW_MS)
    assert shelf.gc(keep=1) == [(at(1), "no manifest: never finished", 5)]
    assert f"{at(1)}/a.sst" in shelf.storage.files


def test_a_dry_run_plans_what_a_run_does(shelf: Shelf) -> None:
    """The plan is complete; a dry run deletes no file and keeps a killed run's lease."""
    for offset, age_s in ((1, 30), (2, 20), (3, 10)):
        shelf.snapshot(offset, age_s=age_s, size=offset)
    shelf.storage.put(f"{at(9)}/x.sst", b"xx"), shelf.storage.put(f"{at(9)}/y.sst", b"yyy")
    shelf.storage.put(f"{at(3)}/spare.sst", b"spare")
    shelf.storage.put("t/run-1.lease", b'{"until": "2020-01-01T00:00:00.000Z"}')
    planned = shelf.gc(keep=1, dry_run=True)
    assert shelf.storage.acts == []
    assert planned == [
        (at(1), "2 newer snapshots", 1),
        (at(2), "1 newer snapshots", 2),
        (f"{at(3)}/spare.sst", "not in the manifest", 5),
        (at(9), "no manifest: never finished", 5),
    ]
    assert shelf.gc(keep=1) == planned
    assert shelf.storage.acts[0] == ("delete", "t/run-1.lease")


def test_leftovers_stay_while_one_of_their_files_is_young(shelf: Shelf) -> None:
    """They also stay while a file's time is unknown; a snapshot's spare file is separate."""
    shelf.snapshot(3)
    edge = NOW_MS - 60_000
    for name, time_ms in (("old", edge - 1), ("young", edge), ("unknown", None)):
        shelf.storage.put(f"{at(3)}/{name}.sst", b"12", time_ms)
    shelf.storage.put(f"{at(3)}/sub/x.sst")
    for offset, time_ms in ((7, edge - 1), (8, edge), (9, None)):
        shelf.storage.put(f"{at(offset)}/a.sst", b"123", edge - 1)
        shelf.storage.put(f"{at(offset)}/b.sst", b"4567", time_ms)
    assert shelf.gc(grace_ms=60_000) == [
        (f"{at(3)}/old.sst", "not in the manifest", 2),
        (at(7), "no manifest: never finished", 7),
    ]


def test_a_valid_lease_keeps_its_topic_alone(shelf: Shelf, caplog: Any) -> None:
    """Other topics are cleaned, as is the partition beside a manifest of a later version."""
    for topic in ("t", "u"):
        for offset in (1, 2):
            shelf.snapshot(offset, topic=topic, age_s=10 - offset)
    until = format_time_ms(NOW_MS + 1)
    shelf.storage.put("t/run-1.lease", b'{"until": "%s"}' % until.encode())
    for offset in (1, 2):
        shelf.snapshot(offset, topic="u", partition=1, age_s=10 - offset)
    later = shelf.storage.read(f"{at(1, topic='u')}/{MANIFEST_NAME}")
    shelf.storage.put(
        f"{at(1, topic='u')}/{MANIFEST_NAME}", later.replace(b'version": 2', b'version": 3')
    )
    assert shelf.gc(keep=1) == [(at(1, 1, "u"), "1 newer snapshots", 4)]
    assert f"its lease ends at {until}" in caplog.text
    assert (
        f"u-0: no data file is removed, because snapshot {snapshot_id(1)} may list any of the files: "
        "manifest: format_version 3" in caplog.text
    )
    assert shelf.seen() == [2, 1]


@pytest.mark.parametrize(
    ("begins_after", "acts"),
    [
        (1, [("delete", f"{at(2)}/{MANIFEST_NAME}")]),
        (2, [("delete", f"{at(number)}/{MANIFEST_NAME}") for number in (2, 1)]),
        (
            3,
            [
                *(("delete", f"{at(number)}/{MANIFEST_NAME}") for number in (2, 1)),
                ("delete folder", at(1)),
            ],
        ),
    ],
)
def test_a_run_that_begins_amid_a_collection_ends_the_collection(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, begins_after: int, acts: list[Any]
) -> None:
    """The lease is read before each removal: the new run may list any remaining file."""
    for offset in (1, 2, 3):
        shelf.snapshot(offset, age_s=10 - offset)
    monkeypatch.setattr(
        retention,
        "leased_until",
        lambda storage, topic, now_ms: "later" if len(storage.acts) >= begins_after else None,
    )
    shelf.gc(keep=1)
    assert shelf.storage.acts == acts


# -- verify


def test_an_empty_folder_is_an_unfinished_snapshot(tmp_path: Path) -> None:
    """A killed run on a local disk leaves such a folder."""
    (tmp_path / at(7)).mkdir(parents=True)
    found = list(verify(Catalog(open_storage(str(tmp_path)))))
    assert found == [Verdict(at(7), None, "no manifest: never finished")]


def checked(shelf: Shelf, monkeypatch: pytest.MonkeyPatch, **problems: str) -> list[Verdict]:
    """Return the verdicts, with the given problems of the snapshots' contents."""
    monkeypatch.setattr(
        verification, "_problem", lambda catalog, manifest: problems.get(f"n{manifest.next_offset}")
    )
    return list(verify(shelf.catalog))


def test_every_folder_has_its_verdict(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    """Verdicts are by topic, partition and id; a folder with files of later snapshots has none."""
    first = shelf.snapshot(1, "a.sst", age_s=9)
    second = shelf.snapshot(2, f"{snapshot_id(1)}/a.sst", "b.sst", age_s=8)
    other = shelf.snapshot(3, partition=1)
    last = shelf.snapshot(4, topic="u")
    shelf.storage.put(f"{at(5)}/x.sst")
    found = checked(shelf, monkeypatch, n3="damaged")
    assert found == [
        Verdict(at(1), first, None),
        Verdict(at(2), second, None),
        Verdict(at(5), None, "no manifest: never finished"),
        Verdict(at(3, 1), other, "damaged"),
        Verdict(at(4, topic="u"), last, None),
    ]
    del shelf.storage.files[f"{at(1)}/{MANIFEST_NAME}"]
    assert [one.folder for one in checked(shelf, monkeypatch)][:2] == [at(2), at(5)]
    shelf.storage.put(f"{at(1)}/y.sst")
    assert checked(shelf, monkeypatch)[0] == Verdict(at(1), None, "no manifest: never finished")
    assert [one.folder for one in verify(shelf.catalog, ["u"])] == [at(4, topic="u")]


def test_a_topic_that_was_made_anew_goes_before_the_contents(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The changelog decides if known, else the newest snapshot."""
    shelf.snapshot(1, age_s=9, topic_id="old")
    shelf.snapshot(2, age_s=1, topic_id="new")
    problems = [one.problem or "" for one in checked(shelf, monkeypatch, n1="damaged")]
    assert "the changelog has new" in problems[0]
    assert problems[1] == ""
    logs = {"t": Changelog("t", {0: Extent(0, 1)}, 1, "old")}
    problems = [one.problem or "" for one in verify(shelf.catalog, logs=logs)]
    assert problems[0] == "damaged"
    assert "the changelog has old" in problems[1]
    shelf.snapshot(3, topic="u", age_s=9, topic_id="old")
    shelf.snapshot(4, topic="u", age_s=1, topic_id="new")
    problems = [one.problem or "" for one in verify(shelf.catalog, logs=logs)]
    assert "the changelog has new" in problems[2], "a deleted topic has no log"
    assert problems[3] == ""
    logs = {"t": Changelog("t", {0: Extent(0, 1)}, 1, None)}
    assert "the changelog at 1" in str(list(verify(shelf.catalog, logs=logs))[1].problem)


@pytest.mark.parametrize(
    ("layers", "rows", "keys", "problem"),
    [
        ((2, 1), {"1": "ab", "2": "cd", "3": "bx"}, 5, None),
        ((2, 1), {"1": "ab", "2": "cd", "3": "bx"}, 6, "5 keys in the files, 6 in the manifest"),
        ((1, 2), {"1": "ab", "2": "cd", "3": "bx"}, 5, "3: key b'b' follows b'd'"),
        ((3,), {"1": "ab", "2": "bc", "3": "x"}, 4, "2: key b'b' follows b'b'"),
        ((1,), {"1": ""}, 0, "Faust's offset key is None, expected b'8'"),
    ],
)
def test_contents_are_checked_layer_by_layer(
    monkeypatch: pytest.MonkeyPatch,
    layers: tuple[int, ...],
    rows: dict[str, str],
    keys: int,
    problem: str | None,
) -> None:
    """Keys ascend across a layer's files; all layers together have the keys and the offset."""
    manifest = Manifest(
        "t", 0, snapshot_id(9), 9, keys, 1, "ab" * 32, format_time_ms(0), tuple(rows), layers=layers
    )

    def items(paths: list[Path]) -> Iterator[tuple[bytes, bytes]]:
        merged = {key.encode(): b"v" for path in paths for key in rows[path.name]}
        if len(paths) == len(rows) and problem != "Faust's offset key is None, expected b'8'":
            merged[OFFSET_KEY] = b"8"
        return iter(sorted(merged.items()))

    monkeypatch.setattr(verification, "read_items", items)
    catalog: Any = SimpleNamespace(fetch=lambda manifest, folder: [Path(name) for name in rows])
    found = verification._problem(catalog, manifest)
    if problem is None and OFFSET_KEY > b"a":
        assert found is None
    assert found == problem


@pytest.mark.parametrize("error", [SnapshotCorruptError("damaged"), OSError("away")])
def test_what_cannot_be_fetched_is_the_problem(error: Exception) -> None:
    """A bug is raised."""

    def fetch(manifest: Any, folder: Path) -> Any:
        raise error

    catalog: Any = SimpleNamespace(fetch=fetch)
    manifest: Any = SimpleNamespace(by_layer=list)
    assert verification._problem(catalog, manifest) == str(error)
    error = ValueError("a bug")
    with pytest.raises(ValueError, match="a bug"):
        verification._problem(catalog, manifest)


# -- which may be used


def test_a_snapshot_from_the_future_is_refused_until_its_time(shelf: Shelf) -> None:
    """Its age is unknown; one that is new may end beyond the end that was read before."""
    shelf.snapshot(9, age_s=-5, topic_id="now"), shelf.snapshot(90, age_s=-50, topic_id="now")
    log = Changelog("t", {0: Extent(3, 10)}, 60_000, "now")
    reasons = [str(reason) for _, reason in Judge(shelf.catalog, log, NOW_MS).verdicts(0)]
    assert all("later than the time of this comparison" in reason for reason in reasons)
    assert [reason.partition(", which")[0] for reason in reasons] == [
        f"it was taken at {format_time_ms(NOW_MS + age_ms)}" for age_ms in (50_000, 5_000)
    ]
    later = [reason for _, reason in Judge(shelf.catalog, log, NOW_MS + 5_000).verdicts(0)]
    assert later[1] is None


def test_every_snapshot_is_judged_the_newest_first(shelf: Shelf) -> None:
    """The partition's own log counts; without an id, other partitions' snapshots count too."""
    shelf.snapshot(5, age_s=40)
    shelf.snapshot(9, age_s=30, topic_id="now")
    shelf.snapshot(50, age_s=20, topic_id="before")
    shelf.snapshot(2, age_s=5, topic_id="now")
    log = Changelog("t", {0: Extent(3, 10), 1: Extent(0, 7)}, 60_000, "now")
    judge = Judge(shelf.catalog, log, NOW_MS)
    found = [(one.next_offset, reason) for one, reason in judge.verdicts(0)]
    assert [offset for offset, _ in found] == [2, 50, 9, 5]
    assert "the changelog begins at 3" in str(found[0][1])
    assert "the changelog has now" in str(found[1][1])
    assert found[2][1] is None
    assert "snapshot 0/00000000000000000002, taken later, ends at the lower offset 2" in str(
        found[3][1]
    )
    late = Judge(shelf.catalog, log, NOW_MS + 30_000)
    reasons = [reason for _, reason in late.verdicts(0)]
    assert reasons[2] is None
    late = Judge(shelf.catalog, log, NOW_MS + 30_001)
    assert "30 s old" not in str([reason for _, reason in late.verdicts(0)][2])
    assert "60 s old, more than the changelog's delete.retention.ms (60 s)" in str(
        [reason for _, reason in late.verdicts(0)][2]
    )


def test_other_partitions_are_read_once_and_only_for_snapshots_without_an_id(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Listing all partitions takes time."""
    looked: list[str] = []
    every = trust.all_folders
    monkeypatch.setattr(
        trust, "all_folders", lambda catalog, topic: looked.append(topic) or every(catalog, topic)
    )
    shelf.snapshot(5, age_s=4, topic_id="now")
    log = Changelog("t", {0: Extent(0, 10)}, 10**9, "now")
    judge = Judge(shelf.catalog, log, NOW_MS)
    assert [reason for _, reason in judge.verdicts(0)] == [None]
    assert looked == []
    shelf.snapshot(6, age_s=3), shelf.snapshot(7, age_s=2)
    assert [reason for _, reason in judge.verdicts(0)] == [None] * 3
    assert looked == ["t"]
    shelf.snapshot(20, partition=1, age_s=1, topic_id="x")
    reasons = [reason for _, reason in Judge(shelf.catalog, log, NOW_MS).verdicts(0)]
    assert [reason is None for reason in reasons] == [False, False, True]
    assert (
        "snapshot 1/00000000000000000020, taken later, is of the topic with id x, not now"
        in str(reasons[0])
    )


def test_without_ids_an_unknown_manifest_may_show_a_new_topic(shelf: Shelf) -> None:
    """A snapshot with the current id needs no other manifest."""
    shelf.snapshot(5, age_s=4), shelf.snapshot(6, age_s=3, topic_id="now")
    later = shelf.snapshot(7, age_s=2).to_json().replace(b'version": 2', b'version": 3')
    shelf.storage.put(f"{at(7)}/{MANIFEST_NAME}", later)
    log = Changelog("t", {0: Extent(0, 10)}, 10**9, "now")
    found = [reason for _, reason in Judge(shelf.catalog, log, NOW_MS).verdicts(0)]
    assert found[0] is None
    assert f"snapshot 0/{snapshot_id(7)} may show that the topic was recreated" in str(found[1])


def test_without_ids_a_shorter_later_snapshot_of_the_partition_shows_a_new_topic() -> None:
    """A snapshot of another partition or of the same time shows no new topic."""
    one = Shelf().snapshot(9, age_s=10)
    ends = {0: 20, 1: 20}

    def shown(newer: Manifest) -> str | None:
        return trust.earlier_topic(one, [newer], topic_id=None, ends=ends)

    shorter = Shelf().snapshot(8, age_s=9)
    assert "ends at the lower offset 8" in str(shown(shorter))
    assert shown(replace(shorter, partition=1)) is None
    assert shown(replace(shorter, created_at=one.created_at)) is None
    assert shown(Shelf().snapshot(9, age_s=9)) is None
    assert shown(Shelf().snapshot(20, partition=1, age_s=9)) is None
    assert "ends beyond the changelog's end, 20" in str(
        shown(Shelf().snapshot(21, partition=1, age_s=9))
    )
    assert shown(Shelf().snapshot(21, partition=2, age_s=9)) is None, "its end is not known"


def test_the_newest_id_is_that_of_the_last_partition_of_one_moment() -> None:
    """A snapshot without an id does not count, however new."""
    found = [
        Shelf().snapshot(1, age_s=5, topic_id="a"),
        Shelf().snapshot(1, age_s=3, partition=1, topic_id="c"),
        Shelf().snapshot(1, age_s=3, topic_id="b"),
        Shelf().snapshot(1, age_s=1),
    ]
    assert trust.newest_topic_id(found) == "c"
    assert trust.newest_topic_id(found[3:]) is None


# -- the catalog


def test_topics_and_partitions_are_folders_with_valid_names(shelf: Shelf) -> None:
    """Topics are in order, and partitions by number; a number has no leading zero and few digits."""
    for path in (
        "b/10/x",
        "b/9/x",
        "b/07/x",
        f"b/{'9' * 200}/x",
        "b/\u0663/x",
        "b/x/y",
        "b/1",
        "a.1_-/0/x",
        "bad name/0/x",
        "top",
    ):
        shelf.storage.put(path)
    assert shelf.catalog.topics() == ["a.1_-", "b"]
    assert shelf.catalog.partitions("b") == [9, 10]


def test_gc_keeps_folders_of_other_programs(shelf: Shelf) -> None:
    """A folder without a manifest counts as a killed run's only if its name is an offset of 20 digits."""
    for path in ("t/0/2026/report", f"t/0/{'1' * 19}/x", f"t/0/{'1' * 21}/x", "t/1/0/part"):
        shelf.storage.put(path)
    shelf.storage.put(f"{at(7)}/part")
    assert [path for path, *_ in shelf.gc()] == [at(7)]


def test_each_folder_says_why_it_is_no_snapshot(shelf: Shelf) -> None:
    """The cases are a copied folder, damaged, later and missing manifests, and a file."""
    good = shelf.snapshot(1)
    shelf.storage.put(f"{at(2)}/{MANIFEST_NAME}", good.to_json())
    shelf.storage.put(f"{at(3)}/{MANIFEST_NAME}", b"{")
    later = good.to_json().replace(b'version": 2', b'version": 3')
    shelf.storage.put(f"{at(4)}/{MANIFEST_NAME}", later)
    shelf.storage.put(f"{at(5)}/a.sst"), shelf.storage.put("t/0/file")
    found = shelf.catalog.folders("t", 0)
    assert found[0] == Found("t", 0, good.snapshot_id, good, None)
    assert [one.snapshot_id for one in found] == [snapshot_id(number) for number in range(1, 6)]
    assert [one.manifest for one in found[1:]] == [None] * 4
    assert [one.may_be_valid for one in found] == [False, False, False, True, False]
    texts = [one.problem or "" for one in found]
    assert texts[1] == f"its manifest is of ('t', 0, '{snapshot_id(1)}')"
    assert texts[2].startswith("manifest: not JSON")
    assert texts[3] == "manifest: format_version 3, this version reads up to 2"
    assert texts[4] == "no manifest: never finished"


def test_of_snapshots_of_one_moment_the_longer_one_is_newer() -> None:
    """Folders without a manifest are left out."""
    one, two, three = (
        Shelf().snapshot(offset, age_s=age) for offset, age in ((5, 9), (7, 9), (1, 8))
    )
    found = [Found("t", 0, "x", each, None) for each in (one, None, three, two)]
    assert newest_first(found) == [three, two, one]


def test_a_snapshot_is_committed_once_all_its_files_are_there(shelf: Shelf) -> None:
    """Files of other snapshots count too; a missing file is named, and no manifest is written."""
    shelf.snapshot(1, "a.sst", size=7)
    manifest = shelf.snapshot(2, f"{snapshot_id(1)}/a.sst", "b.sst", size=7)
    del shelf.storage.files[f"{at(2)}/{MANIFEST_NAME}"]
    assert shelf.catalog.sizes(manifest) == {
        f"{snapshot_id(1)}/a.sst": 7,
        f"{snapshot_id(1)}/{MANIFEST_NAME}": len(shelf.storage.read(f"{at(1)}/{MANIFEST_NAME}")),
        f"{snapshot_id(2)}/b.sst": 7,
    }
    for size in (13, 15):
        with pytest.raises(SnapshotError, match="bytes of its files are gone"):
            shelf.catalog.commit(replace(manifest, bytes=size))
    assert shelf.catalog.commit(manifest) is manifest
    assert shelf.storage.acts == [("write", f"{at(2)}/{MANIFEST_NAME}")]
    assert shelf.storage.read(f"{at(2)}/{MANIFEST_NAME}") == manifest.to_json()
    del shelf.storage.files[f"{at(1)}/a.sst"]
    with pytest.raises(SnapshotError, match=rf"{at(2)}: \['{snapshot_id(1)}/a.sst'\] are gone"):
        shelf.catalog.commit(manifest)


def test_files_are_fetched_in_the_manifest_s_order(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are downloaded under own names; local files stay, and a missing file is named."""
    shelf.snapshot(1, "a.sst")
    manifest = shelf.snapshot(2, f"{snapshot_id(1)}/a.sst", "a.sst")
    folder, digested = tmp_path / "new" / "folder", list[Any]()
    monkeypatch.setattr(
        "faust_assigner.snapshots.catalog.digest_files",
        lambda paths: digested.append(list(paths)) or ("ab" * 32, 8),
    )
    found = shelf.catalog.fetch(manifest, folder)
    assert found == [folder / f"{snapshot_id(1)}-a.sst", folder / f"{snapshot_id(2)}-a.sst"]
    assert digested == [found]
    with pytest.raises(SnapshotCorruptError, match=r"and 8 bytes, the manifest says .* and 9"):
        shelf.catalog.fetch(replace(manifest, bytes=9), folder)
    del shelf.storage.files[f"{at(1)}/a.sst"]
    with pytest.raises(SnapshotCorruptError, match=rf"made-up/{at(1)}/a.sst is missing"):
        shelf.catalog.fetch(manifest, folder)
    shelf.storage.local_path = lambda path: tmp_path / path  # type: ignore[method-assign]
    with pytest.raises(SnapshotCorruptError, match=rf"{at(1)}/a.sst is missing"):
        shelf.catalog.fetch(manifest, folder)


def test_only_files_of_the_snapshot_itself_are_uploaded(shelf: Shelf) -> None:
    """Own files go into the snapshot's folder; files of other snapshots exist already."""
    uploads: list[Any] = []
    shelf.storage.upload = lambda local, path: uploads.append((local, path))  # type: ignore[attr-defined]
    other = f"{snapshot_id(1)}/a.sst"
    files = [
        SstFile(name, Path(f"local-{number}"), 1, 1)
        for number, name in enumerate((other, "b.sst", "c.sst"))
    ]
    assert shelf.catalog.upload("t", 3, 9, files) == (other, "b.sst", "c.sst")
    assert uploads == [
        (Path("local-1"), f"{at(9, 3)}/b.sst"),
        (Path("local-2"), f"{at(9, 3)}/c.sst"),
    ]


def test_without_any_topic_id_later_snapshots_are_the_only_evidence(shelf: Shelf) -> None:
    """Two unknown ids are not equal."""
    shelf.snapshot(9, age_s=10), shelf.snapshot(4, age_s=5)
    log = Changelog("t", {0: Extent(0, 20)}, 10**9, None)
    reasons = [reason for _, reason in Judge(shelf.catalog, log, NOW_MS).verdicts(0)]
    assert reasons[0] is None
    assert "taken later, ends at the lower offset 4" in str(reasons[1])

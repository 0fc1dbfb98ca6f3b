"""The directory for every member's router: the URLs of each partition's owner and of its copies.

The directory is the same for all members, so it is encoded and compressed once. Co-partitioned topics share
one column: the owners' ranks, in partition order, as runs of equal ranks. With the instance ids, the next
leader finds the partitions that a static member had before its restart.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from faust_assigner.errors import MetadataRefused
from faust_assigner.model import NOBODY, Ints
from faust_assigner.wire.bounded import (
    LABEL_CHARS,
    LARGEST_INT,
    NAME_CHARS,
    SETS,
    TOPICS,
    UNPACKED_BYTES,
    URL_CHARS,
    ByUrl,
    read_label,
    unpack,
)
from faust_assigner.wire.runs import Reader, Runs, Writer, join_texts, split_texts

_TOPICS, _URLS, _INSTANCES, _COLUMN, _CHANGELOGS, _GLOBALS, _STANDBYS = range(1, 8)


@dataclass(frozen=True)
class Directory:
    """The owners, as *ranks* of members: a member's rank is its index in ``urls``.

    Members are ordered by their first owned partition, then by member id. ``owners`` maps topic ->
    int64[partitions], the owner's rank or ``NOBODY``; co-partitioned topics share an array. ``instances`` is
    empty if no member has an instance id; otherwise it has one text per rank, "" for no id. ``globals_`` are
    the changelogs of global tables: ``owners`` has the writer of each partition, but every member holds all
    partitions. ``standbys`` maps topic -> arrays like those of ``owners``, with the ranks of copies.
    """

    urls: tuple[str, ...] = ()
    owners: Mapping[str, Ints] = field(default_factory=dict)
    instances: tuple[str, ...] = ()
    changelogs: frozenset[str] = frozenset()
    globals_: frozenset[str] = frozenset()
    standbys: Mapping[str, tuple[Ints, ...]] = field(default_factory=dict)

    def by_url(self, topics: Collection[str]) -> ByUrl:
        """Return URL -> topic -> partitions, for the topics in ``topics`` that the directory contains.

        Members with the same URL are merged.
        """
        found: ByUrl = {url: {} for url in self.urls}
        for topic in sorted(set(topics) & self.owners.keys()):
            owner = self.owners[topic]
            if topic in self.globals_:
                # one list for all members, to save memory: there may be many
                everything = list(range(owner.size))
                for mine in found.values():
                    mine[topic] = everything
                continue
            order = np.argsort(owner, kind="stable")
            first = np.searchsorted(owner[order], np.arange(len(self.urls) + 1))
            for rank, url in enumerate(self.urls):
                held = order[first[rank] : first[rank + 1]].tolist()
                if held:
                    before = found[url].get(topic, [])
                    found[url][topic] = sorted(before + held) if before else held
        return found

    def url_of(self, topic: str, partition: int) -> str:
        """Return the owner's URL; raises KeyError if no owner is known."""
        owner = self.owners[topic]
        if not 0 <= partition < owner.size or owner[partition] == NOBODY:
            raise KeyError((topic, partition))
        return self.urls[int(owner[partition])]

    def standby_urls(self, topic: str, partition: int) -> tuple[str, ...]:
        """Return the URLs of the members with a copy; empty if the directory has no copies."""
        ranks = [
            int(column[partition])
            for column in self.standbys.get(topic, ())
            if 0 <= partition < column.size
        ]
        return tuple(self.urls[rank] for rank in ranks if rank != NOBODY)

    def held_by_instance(self, instance_id: str) -> dict[str, Ints]:
        """Return topic -> the partitions of the static member; empty if the id is unknown or not unique."""
        ranks = [r for r, name in enumerate(self.instances) if name == instance_id]
        if len(ranks) != 1:
            return {}
        held = {t: np.flatnonzero(owner == ranks[0]) for t, owner in self.owners.items()}
        return {t: numbers for t, numbers in held.items() if numbers.size}


def encode_directory(directory: Directory) -> bytes:
    """Encode and compress the directory, to O(runs + members) bytes."""
    out = Writer()
    topics = sorted(directory.owners)
    row = {topic: i for i, topic in enumerate(topics)}
    out.field(_TOPICS, join_texts(topics))
    out.field(_URLS, join_texts(directory.urls))
    if any(directory.instances):
        out.field(_INSTANCES, join_texts(directory.instances))
    columns: dict[bytes, list[int]] = {}
    for topic in topics:
        columns.setdefault(directory.owners[topic].tobytes(), []).append(row[topic])
    for raw, rows in columns.items():
        out.field(_COLUMN, _encode_column(np.frombuffer(raw, dtype=np.int64), rows))
    copies: dict[tuple[bytes, ...], list[int]] = {}
    for topic in sorted(directory.standbys.keys() & row.keys()):
        copies.setdefault(tuple(c.tobytes() for c in directory.standbys[topic]), []).append(
            row[topic]
        )
    for raws, rows in copies.items():
        for raw in raws:
            out.field(_STANDBYS, _encode_column(np.frombuffer(raw, dtype=np.int64), rows))
    for tag, names in ((_CHANGELOGS, directory.changelogs), (_GLOBALS, directory.globals_)):
        body = Writer()
        body.numbers([row[t] for t in names if t in row])
        out.field(tag, body.data)
    return zlib.compress(bytes(out.data), 9)


def _encode_column(owner: Ints, rows: list[int]) -> bytes:
    """Encode the column's topics, then its runs: the ranks as differences, then the lengths."""
    body = Writer()
    body.numbers(rows)
    first = np.flatnonzero(np.diff(owner, prepend=owner[:1] - 1) != 0)
    steps: Ints = np.diff(owner[first], prepend=NOBODY)
    body.varint(first.size)
    body.varints(np.where(steps < 0, -2 * steps - 1, 2 * steps).tolist())
    body.varints((np.diff(first, append=owner.size) - 1).tolist())
    return bytes(body.data)


def decode_directory(data: bytes) -> Directory:
    """Decode the directory; raises :class:`MetadataRefused`."""
    topics: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    instances: tuple[str, ...] = ()
    owners: dict[str, Ints] = {}
    standbys: dict[str, tuple[Ints, ...]] = {}
    marked: dict[int, frozenset[str]] = {}
    cells = UNPACKED_BYTES
    for tag, body in Reader(unpack(data)).fields():
        if tag == _TOPICS:
            topics = _decode_labels(body.data, "topic", TOPICS, NAME_CHARS)
        elif tag == _URLS:
            urls = _decode_labels(body.data, "url", SETS, URL_CHARS)
        elif tag == _INSTANCES:
            instances = _decode_labels(body.data, "instance id", SETS, LABEL_CHARS)
        elif tag in (_COLUMN, _STANDBYS):
            named = _topics_of_rows(body.runs(), topics)
            column = _decode_column(body, len(urls), cells)
            cells -= column.size
            if tag == _COLUMN:
                owners.update(dict.fromkeys(named, column))
            else:
                standbys.update({topic: (*standbys.get(topic, ()), column) for topic in named})
        elif tag in (_CHANGELOGS, _GLOBALS):
            marked[tag] = frozenset(_topics_of_rows(body.runs(), topics))
    if instances and len(instances) != len(urls):
        raise MetadataRefused(f"{len(instances)} instance ids for {len(urls)} URLs")
    return Directory(
        urls,
        owners,
        instances,
        marked.get(_CHANGELOGS, frozenset()),
        marked.get(_GLOBALS, frozenset()),
        standbys,
    )


def _decode_labels(raw: bytes, what: str, most: int, chars: int) -> tuple[str, ...]:
    if not raw:
        # Empty bytes mean no text or one empty text. Return one empty text: without members, no rank refers
        # to it.
        return ("",)
    texts = split_texts(raw)
    if len(texts) > most:
        raise MetadataRefused(f"{len(texts)} {what}s, the limit is {most}")
    return tuple(read_label(t, what, chars=chars) for t in texts)


def _topics_of_rows(rows: Runs, topics: tuple[str, ...]) -> list[str]:
    return [topics[i] for i in rows.below(len(topics)).numbers()]


def _decode_column(body: Reader, members: int, cells: int) -> Ints:
    count = body.count(limit=LARGEST_INT, item_bytes=2)
    coded = np.array([body.varint() for _ in range(count)], dtype=np.int64)
    lengths = np.array([body.varint() for _ in range(count)], dtype=np.int64) + 1
    ranks: Ints = np.cumsum(np.where(coded & 1, -(coded + 1) // 2, coded // 2)) + NOBODY
    if int(lengths.sum()) > cells:
        raise MetadataRefused(f"{int(lengths.sum())} owners, the limit is {cells}")
    if count and (int(ranks.min()) < NOBODY or int(ranks.max()) >= members):
        raise MetadataRefused(f"an owner's rank is beyond the {members} members")
    return np.repeat(ranks, lengths)

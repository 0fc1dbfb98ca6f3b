"""Stories of records, fetches and transactions, for test_answers."""

from __future__ import annotations

import datetime
from typing import Any, Final

from faust_assigner.broker.security.acls import (
    CLUSTER,
    DESCRIBE,
    GROUP,
    READ,
    THE_CLUSTER,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
)
from faust_assigner.broker.storage.unpacking import pack
from tests.support.clients.raw_client import batch, one_record
from tests.support.hall import Hall
from tests.unit.broker.api.played import NOW, Ask, Do, Restart, Story
from tests.unit.broker.api.stories_of_groups import _offsets
from tests.unit.broker.api.stories_of_topics import (
    NOBODY_S_ID,
    OFFSETS,
    _at,
    full_disk,
    id_of,
    records,
    rules,
    settings,
    topics,
)

PRODUCE, FETCH, INIT, ADD, ADD_GROUP, END, TXN_COMMIT = 0, 1, 22, 24, 25, 26, 28
PRODUCERS, TRANSACTIONS, LIST = 61, 65, 66
MS: Final = datetime.timedelta(milliseconds=1)
Parts = tuple[tuple[int, bytes], ...]


def _produce(version: int, *given: tuple[str, Parts], acks: int = -1, tx: str | None = None) -> Ask:
    def values(hall: Hall) -> dict[str, Any]:
        data: list[dict[str, Any]] = []
        for name, parts in given:
            key: dict[str, Any] = {"name": name}
            if version >= 13:
                key = {"topic_id": NOBODY_S_ID if name == "x" else id_of(hall, name)}
            data.append({**key, "partition_data": [{"index": n, "records": r} for n, r in parts]})
        return {"transactional_id": tx, "acks": acks, "timeout_ms": 1_000, "topic_data": data}

    return Ask(PRODUCE, version, values)


def _config(hall: Hall, name: str, **configs: str) -> None:
    topic = hall.node.catalogue.get(name)
    assert topic is not None
    given = {key.replace("_", "."): value for key, value in configs.items()}
    hall.node.catalogue.configure(topic, given, validate_only=False)


def _fetch(version: int, *wanted: tuple[str, tuple[tuple[int, int, int], ...]], **more: Any) -> Ask:
    def values(hall: Hall) -> dict[str, Any]:
        named: list[dict[str, Any]] = []
        for name, parts in wanted:
            key: dict[str, Any] = {"topic": name}
            if version >= 13:
                key = {"topic_id": NOBODY_S_ID if name == "x" else id_of(hall, name)}
            listed = [
                {"partition": n, "fetch_offset": at, "partition_max_bytes": size}
                for n, at, size in parts
            ]
            if version >= 9:
                listed = [{**one, "current_leader_epoch": -1} for one in listed]
            named.append({**key, "partitions": listed})
        usual = {"max_wait": 0 * MS, "min_bytes": 1, "max_bytes": 9_999, "isolation_level": 0}
        return {**usual, "topics": named, **more}

    return Ask(FETCH, version, values)


def _session(epoch: int, *wanted: Any, version: int = 11, number: int = 1_001, **more: Any) -> Ask:
    return _fetch(version, *wanted, session_id=number, session_epoch=epoch, **more)


_TWO: Final = batch(one_record() + one_record(b"w", offset_delta=1), count=2)
RECORDS: Story = (
    topics(t=3, u=1, v=1, **{OFFSETS: 1}),
    Do("u has the broker's times, v at most 90 bytes a batch, v waits for every second record", lambda hall: (
        _config(hall, "u", message_timestamp_type="LogAppendTime"),
        _config(hall, "v", max_message_bytes="90", flush_messages="2"),
    )),
    _produce(9, ("t", ((2, _TWO), (0, batch()))), ("u", ((0, batch()), (4, batch()))),
        ("t", ((2, batch()),))),
    _produce(3, ("x", ((0, batch()),)), ("t", ((-1, batch()), (1, b""), (0, batch(magic=1)))),
        (OFFSETS, ((0, batch()),))),
    _produce(13, ("x", ((0, batch()),)), ("t", ((2, batch(attributes=0x20)),)),
        ("v", ((0, batch(one_record(b"v" * 30))),))),
    _produce(6, ("t", ((1, batch(pack(4, one_record()), attributes=4)),)), ("v", ((0, batch()),))),
    _produce(9, ("v", ((0, batch()),))),
    _produce(9, ("v", ((0, batch()),))),
    _produce(7, ("t", ((1, batch(pack(4, one_record()), attributes=4)),))),
    _produce(9, ("t", ((1, batch(one_record(b"v" * 17_000))),))),
    _produce(9, ("t", ((0, batch(count=2, last_delta=5)),))),
    _produce(9, ("t", ((0, batch(producer_id=7, epoch=0, sequence=0)),))),
    _produce(9, ("t", ((0, batch(producer_id=7, epoch=0, sequence=0)),))),
    _produce(9, ("t", ((0, batch(producer_id=7, epoch=0, sequence=5)),))),
    _produce(9, ("t", ((0, batch(producer_id=7, epoch=0, sequence=1, attributes=0x10)),)),
        ("u", ((0, batch()),))),
    _produce(
        9, ("u", ((0, batch()),)),
        ("t", ((1, batch()), (2, batch(producer_id=8, epoch=0, sequence=0, attributes=0x10)))),
    ),
    _produce(9, ("t", ((0, batch()),)), acks=2),
    _produce(9, ("t", ((0, batch()),)), acks=1),
    _fetch(4, ("t", ((2, 0, 999), (0, 1, 999), (1, 0, 999))), ("x", ((0, 0, 9),))),
    _fetch(10, ("t", ((1, 1, 999), (0, 9, 999), (1, 0, 100), (-1, 0, 9))), ("u", ((0, 0, 999),))),
    _fetch(13, ("t", ((2, 1, 999), (7, 1, 999))), ("x", ((0, 0, 9),))),
    _fetch(9, ("t", ((1, 0, 999),)), ("u", ((0, 1, 999),)), isolation_level=1),
    _session(0, ("t", ((2, 0, 999), (1, 2, 999))), ("u", ((0, 2, 999),))),
    _session(1, ("u", ((0, 0, 70),))),
    _session(2, ("t", ((2, 2, 999), (0, 0, 999))), forgotten_topics_data=[{"topic": "u",
        "partitions": (0,)}]),
    records("t", 1, 5_000),
    _session(3, ("t", ((2, 2, 999),)), number=9),
    _session(4),
    _session(2),
    _session(3),
    _session(4, version=13),
    _session(-1, ("t", ((2, 2, 999),))),
    _session(4),
    _session(0, ("t", ((2, 2, 999),)), version=17, number=0),
    _session(0),
    _session(0, ("t", ((2, 0, 999),))),
    _session(
        1,
        forgotten_topics_data=[{"topic": "t", "partitions": (7, 1)}, {"topic": "x", "partitions": (0,)}],
        number=1_004,
    ),
    _session(2, forgotten_topics_data=[{"topic": "t", "partitions": (2,)}], number=1_004),
    _session(3, number=1_004),
    rules((WRITE, TOPIC, "t"), (READ, TOPIC, "u")),
    _produce(9, ("u", ((0, batch()),)), ("t", ((0, batch()),))),
    _produce(13, ("u", ((0, batch()),)), ("t", ((0, batch()),))),
    _produce(9, ("t", ((0, batch(producer_id=7, epoch=0, sequence=1, attributes=0x10)),)), tx="tx"),
    _fetch(11, ("t", ((0, 0, 999),)), ("u", ((0, 0, 999),)), ("x", ((0, 0, 999),))),
    _fetch(13, ("t", ((0, 0, 999),)), ("u", ((0, 0, 999),)), ("x", ((0, 0, 999),))),
    Do("a full disk", full_disk),
    _produce(9, ("t", ((2, batch()),))),
    _produce(9, ("t", ((2, batch()),)), acks=0),
)  # fmt: skip


def _init(version: int, tx: str | None = "tx", timeout_ms: int = 60_000, **more: Any) -> Ask:
    values = {"transactional_id": tx, "transaction_timeout": timeout_ms * MS}
    if version >= 3:
        values |= {"producer_id": -1, "producer_epoch": -1}
    return Ask(INIT, version, {**values, **more})


def _add(version: int, epoch: int, *parts: tuple[str, tuple[int, ...]], tx: str = "tx") -> Ask:
    return Ask(ADD, version, {
        "v3_and_below_transactional_id": tx, "v3_and_below_producer_id": 1,
        "v3_and_below_producer_epoch": epoch,
        "v3_and_below_topics": [{"name": name, "partitions": numbers} for name, numbers in parts],
    })  # fmt: skip


def _add_group(version: int, epoch: int, group: str = "g", tx: str = "tx") -> Ask:
    return Ask(ADD_GROUP, version, {
        "transactional_id": tx, "producer_id": 1, "producer_epoch": epoch, "group_id": group,
    })  # fmt: skip


def _end(
    version: int, epoch: int, *, commits: bool = True, tx: str = "tx", producer: int = 1
) -> Ask:
    return Ask(END, version, {
        "transactional_id": tx, "producer_id": producer, "producer_epoch": epoch, "committed": commits,
    })  # fmt: skip


def _pend(version: int, epoch: int, *parts: tuple[str, int, int, str], **more: Any) -> Ask:
    named = [
        {
            "name": name,
            "partitions": [
                {"partition_index": n, "committed_offset": at, "committed_metadata": note}
            ],
        }
        for name, n, at, note in parts
    ]
    if version >= 3:
        more = {"generation_id": -1, "member_id": "", "group_instance_id": None, **more}
    return Ask(TXN_COMMIT, version, {
        "transactional_id": "tx", "group_id": "g", "producer_id": 1, "producer_epoch": epoch,
        "topics": named, **more,
    })  # fmt: skip


def _record(epoch: int, sequence: int) -> bytes:
    return batch(producer_id=1, epoch=epoch, sequence=sequence, attributes=0x10)


def _later(hall: Hall) -> None:
    hall.node.clock = lambda: NOW + 250


def _list(version: int, **more: Any) -> Ask:
    values: dict[str, Any] = {"state_filters": (), "producer_id_filters": ()}
    if version >= 1:
        values["duration_filter"] = -1
    if version >= 2:
        values["transactional_id_pattern"] = None
    return Ask(LIST, version, {**values, **more})


_VIEWS: Final = (
    Ask(PRODUCERS, 0, {"topics": [
        {"name": "t", "partition_indexes": (2, 0, 9, 1)}, {"name": "x", "partition_indexes": (0,)},
    ]}),
    Ask(TRANSACTIONS, 0, {"transactional_ids": ("tx", "x", "", "tx")}),
)  # fmt: skip
TRANSACTIONS_OF: Story = (
    topics(u=1, t=3, **{OFFSETS: 1}),
    settings(num_partitions=5),
    Do("u waits for the disk after 3 records", lambda hall: _config(hall, "u", flush_messages="3")),
    _init(0, None),
    _init(3),
    _init(4, producer_id=1, producer_epoch=7),
    _init(3, producer_id=1, producer_epoch=-1),
    _init(2, ""),
    _init(1, "t" * 1_025),
    _init(1, "slow", 900_001),
    _init(5, "other", 5_000),
    _add(3, 0, ("t", (2, 0)), ("x", (0,)), ("t", (7,))),
    _add(3, 0, ("t", (2, 0)), (OFFSETS, (0,))),
    _add(1, 9, ("t", (2, 0))),
    _add(2, 9, ("t", (2, 0))),
    _add(2, 0, ("t", (2, 0)), tx="nobody"),
    _add(2, 0, ("t", (2,)), ("u", (0,))),
    _add_group(3, 0, ""),
    _add_group(3, 0, "g" * 1_025),
    _add_group(2, 9),
    _add_group(1, 9),
    _produce(9, ("t", ((2, batch()), (1, _record(0, 0)))), tx="tx"),
    _produce(9, ("t", ((1, batch()), (2, _record(0, 0)))), ("u", ((0, _record(0, 0)),)), tx="tx"),
    _produce(11, ("t", ((0, _record(0, 0)),)), tx="tx"),
    _produce(10, ("t", ((2, _record(5, 1)),)), tx="tx"),
    _produce(12, ("t", ((0, _record(0, 0)),)), tx="tx"),
    _produce(9, ("t", ((0, _record(0, 1)),))),
    _produce(9, ("t", ((2, batch(producer_id=1, epoch=0, sequence=1)),))),
    _pend(3, 0, ("t", 0, 5, "one")),
    _pend(4, 0, ("t", 0, 5, "one")),
    _add_group(4, 0),
    _pend(3, 0, ("t", 0, 5, "one"), ("x", 1, 6, ""), ("u", 0, 7, "n" * 5_000), ("t", 2, 8, "two")),
    _pend(0, 9, ("t", 0, 5, "one"), ("x", 1, 6, "")),
    _pend(3, 0, ("x", 1, 6, "")),
    _pend(3, 0, ("t", 0, 5, ""), member_id="m", generation_id=4),
    _pend(5, 0, ("t", 1, 9, "h"), group_id="h"),
    *(_pend(5, 0, ("t", 1, 9, ""), group_id=name) for name in ("", "g" * 1_025)),
    _offsets(7, ("g", None), stable=True),
    *_VIEWS,
    *(
        _fetch(11, ("t", ((2, 0, 999), (2, 1, 999), (0, 0, 9), (1, 0, 9))), isolation_level=level)
        for level in (0, 1)
    ),
    *(_at(version, "t", (2, -1), (0, 1_000), (1, -1)) for version in (1, 2)),
    _at(2, "t", (2, -1), (0, 1_000), (1, -1), level=1),
    Restart(),
    *_VIEWS,
    Do("250 ms later", _later),
    _list(0),
    _list(1, duration_filter=249),
    _list(1, duration_filter=250),
    _list(2, state_filters=("Ongoing", "Zzz", "Dead", "Aaa"), transactional_id_pattern="t.*"),
    _list(2, transactional_id_pattern="("),
    _list(0, producer_id_filters=(2, 77)),
    _end(3, 0, tx="nobody"),
    _end(1, 9),
    _end(2, 9),
    _end(3, 0),
    _end(3, 0),
    _end(3, 0, commits=False),
    _offsets(7, ("g", None), ("h", None), stable=True),
    _add(3, 0, ("t", (1,))),
    _produce(9, ("t", ((1, _record(0, 0)),)), tx="tx"),
    _end(5, 0, commits=False),
    _end(5, 1, commits=True),
    _end(5, 9, commits=True),
    _fetch(11, ("t", ((2, 0, 999), (1, 0, 999))), isolation_level=1),
    records("t", 1, 5_000),
    _fetch(11, ("t", ((1, 3, 999),)), isolation_level=1),
    _fetch(11, ("t", ((1, 2, 999),)), isolation_level=1),
    Restart(),
    _fetch(11, ("t", ((2, 0, 999), (1, 0, 999))), isolation_level=1),
    _init(5),
    *_VIEWS,
    rules(
        (WRITE, TRANSACTIONAL_ID, "tx"), (DESCRIBE, TRANSACTIONAL_ID, "tx"), (WRITE, TOPIC, "t"),
        (READ, TOPIC, "t"), (READ, GROUP, "g"), (DESCRIBE, TOPIC, "x"),
    ),
    _init(4, "other"),
    _init(4, None),
    _add(3, 2, ("t", (2,)), ("u", (0,))),
    _add(3, 2, ("t", (2,)), tx="other"),
    _add(3, 2, ("t", (2,))),
    _add_group(3, 2, tx="other"),
    _add_group(3, 2, "h"),
    _pend(3, 2, ("t", 0, 5, "one"), ("u", 0, 7, "")),
    _end(3, 2, tx="other"),
    *_VIEWS,
    _list(0),
    rules((DESCRIBE, CLUSTER, THE_CLUSTER)),
    _init(4, None),
    Do("a full disk", full_disk),
    rules((WRITE, TRANSACTIONAL_ID, "tx")),
    _end(3, 2),
    _end(5, 2),
    _init(4),
)  # fmt: skip

FULL: Story = (
    topics(t=1),
    Do("a full disk", full_disk),
    _init(0, None),
    _init(5),
    _init(1),
    _produce(9, ("t", ((0, batch()),))),
    _add_group(3, 0),
    _end(5, 0),
)

STORIES: Final[dict[str, Story]] = {
    "records": RECORDS,
    "transactions": TRANSACTIONS_OF,
    "full": FULL,
}

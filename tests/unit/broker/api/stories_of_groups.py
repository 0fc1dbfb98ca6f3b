"""Stories of groups, their members and offsets, for test_answers."""

from __future__ import annotations

import datetime
from typing import Any, Final

from faust_assigner.broker.security.acls import DELETE, DESCRIBE, GROUP, READ, TOPIC
from faust_assigner.coordinator.offsets import Committed
from tests.support.hall import Hall
from tests.unit.broker.api.played import Ask, Do, Restart, Story
from tests.unit.broker.api.stories_of_topics import (
    NOBODY_S_ID,
    full_disk,
    id_of,
    rules,
    settings,
    topics,
)

COMMIT, FETCH_OFFSETS, JOIN, BEAT, LEAVE, SYNC = 8, 9, 11, 12, 13, 14
DESCRIBE_GROUPS, LIST, DELETE_GROUPS, DELETE_OFFSETS, CONSUMER, CONSUMERS = 15, 16, 42, 47, 68, 69
SECOND: Final = datetime.timedelta(seconds=1)
MEMBER: Final = "raw-00000000-0000-0000-0000-"


def _join(version: int, member_id: str = "", group: str = "g", **more: Any) -> Ask:
    values: dict[str, Any] = {
        "group_id": group, "session_timeout": 10 * SECOND, "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff"}],
    }  # fmt: skip
    if version >= 1:
        values["rebalance_timeout"] = 20 * SECOND
    return Ask(JOIN, version, {**values, **more})


def _sync(version: int, member_id: str, generation: int, **more: Any) -> Ask:
    values = {
        "group_id": "g", "generation_id": generation, "member_id": member_id,
        "assignments": [{"member_id": member_id, "assignment": b"abc"}],
    }  # fmt: skip
    if version >= 5:
        values |= {"protocol_type": "consumer", "protocol_name": "range"}
    return Ask(SYNC, version, {**values, **more})


def _beat(version: int, member_id: str, generation: int, **more: Any) -> Ask:
    values = {"group_id": "g", "generation_id": generation, "member_id": member_id}
    return Ask(BEAT, version, {**values, **more})


def _leave(version: int, *members: tuple[str, str | None]) -> Ask:
    listed = [{"member_id": one, "group_instance_id": instance} for one, instance in members]
    more = {"members": listed} if version >= 3 else {"member_id": members[0][0]}
    return Ask(LEAVE, version, {"group_id": "g", **more})


def _known(number: int) -> str:
    """Return the id that the broker gives to a member, by the number of the id."""
    return f"{MEMBER}{number:012x}"


def _describe(version: int, *groups: str, **more: Any) -> Ask:
    return Ask(DESCRIBE_GROUPS, version, {"groups": groups, **more})


def _part(number: int, offset: int, note: str | None = "", epoch: int = -1) -> dict[str, Any]:
    return {
        "partition_index": number, "committed_offset": offset, "committed_metadata": note,
        "committed_leader_epoch": epoch,
    }  # fmt: skip


def _commit(version: int, *given: tuple[str, tuple[dict[str, Any], ...]], **more: Any) -> Ask:
    who = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "", **more}

    def values(hall: Hall) -> dict[str, Any]:
        named: list[dict[str, Any]] = []
        for name, parts in given:
            if version < 6:
                parts = tuple({k: v for k, v in p.items() if "epoch" not in k} for p in parts)
            known = hall.node.catalogue.get(name)
            topic_id = NOBODY_S_ID if known is None else known.topic_id
            named.append(
                {**({"topic_id": topic_id} if version >= 10 else {"name": name}), "partitions": parts}
            )  # fmt: skip
        return {**who, "topics": named}

    return Ask(COMMIT, version, values)


def _offsets(version: int, *groups: tuple[str, Any], stable: bool = False) -> Ask:
    def values(hall: Hall) -> dict[str, Any]:
        listed: list[dict[str, Any]] = []
        for group, asked in groups:
            wanted = None
            if asked is not None:
                wanted = [
                    {
                        **(
                            {"topic_id": id_of(hall, n) if n != "x" else NOBODY_S_ID}
                            if version >= 10
                            else {"name": n}
                        ),
                        "partition_indexes": numbers,
                    }
                    for n, numbers in asked
                ]
            listed.append({"group_id": group, "topics": wanted})
        more = {"require_stable": stable} if version >= 7 else {}
        return {"groups": listed, **more} if version >= 8 else {**listed[0], **more}

    return Ask(FETCH_OFFSETS, version, values)


def _pending(hall: Hall) -> None:
    hall.node.groups.books.store_pending("g", 7, {("t", 2): Committed(99)})


def _anew(hall: Hall) -> None:
    hall.node.groups.books.commit("g", {("u", 1): Committed(66)})
    hall.node.groups.books.store_pending("g", 8, {("u", 1): Committed(77)})
    topic = hall.node.catalogue.get("u")
    assert topic is not None
    hall.node.catalogue.delete(topic)
    assert list(hall.node.groups.books.topic_deleted("u")) == ["g"]
    assert list(hall.node.groups.books.topic_deleted("u")) == []
    hall.node.catalogue.create("u", 2, {})
    hall.node.groups.books.commit("g", {("u", 0): Committed(18)})


def _forget(*asked: tuple[str, tuple[int, ...]], group: str = "g") -> Ask:
    listed = [
        {"name": name, "partitions": [{"partition_index": n} for n in numbers]}
        for name, numbers in asked
    ]
    return Ask(DELETE_OFFSETS, 0, {"group_id": group, "topics": listed})


OFFSETS: Story = (
    topics(t=4, u=2),
    _forget(("t", (1,)), group=""),
    _commit(
        7, ("u", (_part(1, 11, "one", 0), _part(2, 12))), ("x", (_part(0, 13),)),
        ("t", (_part(3, 14, None), _part(0, 15, "n" * 5_000), _part(-1, 16), _part(2, 17, "two"))),
        ("u", (_part(0, 18),)),
    ),
    _commit(10, ("x", (_part(0, 21),)), ("t", (_part(1, 22, "three"), _part(9, 23)))),
    _commit(2, ("t", (_part(0, 24),)), retention_time=5 * SECOND),
    _commit(8, ("t", (_part(0, 25), _part(7, 26))), member_id="m", generation_id_or_member_epoch=3),
    _commit(9, ("t", (_part(7, 26), _part(0, 27, "n" * 5_000))), member_id="m"),
    _commit(9, ("x", (_part(7, 26),)), group_id="h", generation_id_or_member_epoch=3),
    _commit(9, ("t", (_part(0, 26),)), group_id="h", generation_id_or_member_epoch=3),
    *(
        _commit(8, ("t", (_part(0, 26),)), group_id=name, **who)
        for name in ("g" * 1_025, "")
        for who in ({}, {"member_id": "m", "generation_id_or_member_epoch": 3})
    ),
    settings(offset_metadata_max_bytes=10),
    _commit(8, ("t", (_part(0, 28, "n" * 11), _part(1, 29, "n" * 10))), group_id="short"),
    _offsets(7, ("", None)),
    _offsets(9, ("g" * 1_025, None)),
    _offsets(1, ("g", [("t", (2, 0, 5, 3)), ("x", (0,)), ("u", (1, 0))])),
    _offsets(6, ("g", None)),
    _offsets(7, ("x", [("t", (1,))])),
    Do("an open transaction changes t-2", _pending),
    _offsets(6, ("g", [("t", (2, 1))])),
    _offsets(7, ("g", [("t", (1, 2, 3))]), stable=True),
    _offsets(8, ("g", [("t", (1,))]), ("h", None), ("g", [("u", (1,)), ("t", (2,))])),
    _offsets(9, ("g", None), stable=True),
    _offsets(8, ("g", None), ("g", [("x", (0,)), ("t", (0,))])),
    _offsets(10, ("g", [("t", (1, 0)), ("x", (3, 4)), ("u", (0,))])),
    _offsets(10, ("g", None)),
    Restart(),
    _offsets(9, ("g", None), stable=True),
    _forget(("t", (1, 3, 9)), ("x", (0,)), ("u", (1,))),
    Do("a second topic is deleted and created anew", _anew),
    _offsets(8, ("g", None)),
    _forget(("t", (1,)), group="nobody"),
    _forget(("t", (1,)), group=""),
    _offsets(8, ("g", None)),
    rules((READ, GROUP, "g"), (DESCRIBE, GROUP, "g"), (DELETE, GROUP, "g"), (READ, TOPIC, "u"),
        (DESCRIBE, TOPIC, "u")),
    _offsets(8, ("g", None), ("h", None)),
    _offsets(7, ("g", [("t", (0, 1)), ("u", (0,))])),
    _offsets(7, ("h", [("t", (0,))])),
    _commit(8, ("t", (_part(0, 31), _part(1, 32))), ("u", (_part(0, 33),))),
    _forget(("t", (0,)), ("u", (0,))),
    Do("a full disk", full_disk),
    _commit(8, ("u", (_part(0, 34), _part(9, 35)))),
)  # fmt: skip


CLASSIC: Story = (
    topics(t=3),
    _join(5),
    _join(5, _known(3), group_instance_id=None),
    _describe(6, "g", "x", "g"),
    _sync(5, _known(3), 1, protocol_name="roundrobin"),
    _sync(5, _known(3), 1),
    _sync(3, _known(3), 1),
    _sync(4, "stranger", 1),
    _sync(4, _known(3), 2),
    _beat(4, _known(3), 1),
    _beat(3, _known(3), 2),
    _beat(0, "stranger", 1),
    _beat(3, "", 1, group_id=""),
    _describe(5, "x", "g", include_authorized_operations=True),
    *(
        _commit(version, ("t", (_part(1, 7),)), member_id=who, generation_id_or_member_epoch=at)
        for version, who, at in (
            (8, _known(3), 2),
            (9, _known(3), 2),
            (9, "m", 1),
            (9, _known(3), 1),
        )
    ),
    _forget(("t", (1,)), ("x", (0,))),
    _describe(0, "g"),
    Restart(),
    _describe(6, "g"),
    _beat(4, _known(3), 1),
    _sync(5, _known(3), 1),
    _join(6, "stranger"),
    _join(9, _known(3), protocol_type="connect"),
    _join(7, _known(3), session_timeout=SECOND),
    _join(4, group="", member_id=""),
    _join(5, group="g" * 1_025),
    _beat(4, "m", 1, group_id="g" * 1_025),
    _leave(3, ("stranger", None), (_known(3), None)),
    _leave(1, (_known(3), None)),
    _leave(2, ("stranger", None)),
    _join(9, group_instance_id="i", reason="why", group="static"),
    _join(9, group_instance_id="i", group="static"),
    _join(0, group="old"),
    _join(5, group="connect", group_instance_id="i", protocol_type="connect"),
    _forget(("t", (1,)), group="connect"),
    _describe(6, "static", "old"),
    Ask(LIST, 5, {"states_filter": (), "types_filter": ()}),
    Ask(LIST, 4, {"states_filter": (" EMPTY", "stable")}),
    Ask(LIST, 0),
    Ask(DELETE_GROUPS, 2, {"groups_names": ("g", "static", "x", "", "g")}),
    Restart(),
    Ask(LIST, 5, {"states_filter": (), "types_filter": ()}),
    _describe(6, "static", "old"),
    rules((READ, GROUP, "g"), (DESCRIBE, GROUP, "static"), (DELETE, GROUP, "old")),
    Ask(LIST, 3),
    _describe(6, "old", "static", include_authorized_operations=True),
    Ask(DELETE_GROUPS, 1, {"groups_names": ("static", "old")}),
    _beat(4, "m", 1, group_id="static"),
)


def _consumer(version: int, member: str, epoch: int, **more: Any) -> Ask:
    values: dict[str, Any] = {
        "group_id": "g", "member_id": member, "member_epoch": epoch, "instance_id": None,
        "rack_id": None, "rebalance_timeout": 60 * SECOND, "server_assignor": None,
        "subscribed_topic_names": None, "topic_partitions": None,
    }  # fmt: skip
    if epoch == 0:
        values |= {"subscribed_topic_names": ["u", "t"], "topic_partitions": []}
    return Ask(CONSUMER, version, {**values, **more})


def _consumers(version: int, *groups: str, **more: Any) -> Ask:
    return Ask(CONSUMERS, version, {"group_ids": groups, **more})


def _at_once(hall: Hall) -> None:
    at_once = {"consumer.assignment.interval.ms": "0"}
    hall.node.group_configs.configure("g", at_once, validate_only=False)


def _holding(member: str, epoch: int, *held: tuple[str, tuple[int, ...]]) -> Ask:
    asked = _consumer(1, member, epoch)
    assert isinstance(asked.values, dict)
    usual = asked.values

    def values(hall: Hall) -> dict[str, Any]:
        owned = [{"topic_id": id_of(hall, name), "partitions": numbers} for name, numbers in held]
        return {**usual, "topic_partitions": owned}

    return Ask(CONSUMER, 1, values)


CONSUMERS_OF: Story = (
    topics(t=4, u=2),
    Do("targets are computed at once", _at_once),
    _consumer(1, "m1", 0, rack_id="r", subscribed_topic_regex=None),
    _consumer(1, "m1", 2),
    _consumers(1, "g"),
    _consumer(0, "", 0, instance_id="i", server_assignor="range", subscribed_topic_names=["t"]),
    _consumers(1, "g", "g", "x", ""),
    _consumer(1, "m1", 2),
    _consumers(0, "g", include_authorized_operations=True),
    _holding("m1", 2, ("t", (0, 1)), ("u", (0, 1))),
    _consumers(1, "g"),
    _consumer(1, "m3", 0, subscribed_topic_names=[], subscribed_topic_regex="t.*"),
    _holding("m4", 0, ("t", ()), ("u", (1, 0))),
    Restart(),
    _consumers(1, "g"),
    _consumer(1, "m1", 2),
    _consumer(1, "stranger", 4),
    _consumer(1, "m1", 9),
    _consumer(1, "", 0),
    _consumer(1, "m1", 0, group_id=""),
    _consumer(1, "m1", 0, group_id="g" * 1_025),
    _consumer(1, "m" * 300, 0, group_id="long"),
    _consumer(1, "m" * 300, 2, group_id="long"),
    _consumer(1, "m" * 256, 0, group_id="long"),
    _consumer(1, "m3", -1),
    _consumers(1, "g"),
    Ask(LIST, 5, {"states_filter": (), "types_filter": ("CONSUMER",)}),
    _describe(6, "g"),
    _describe(5, "g"),
    Ask(DELETE_GROUPS, 2, {"groups_names": ("g",)}),
    _join(5, group="classic", group_instance_id="i"),
    _consumers(1, "classic"),
    Ask(DELETE_OFFSETS, 0, {"group_id": "g", "topics": [{"name": "t",
        "partitions": [{"partition_index": 1}]}]}),
    rules((READ, GROUP, "g"), (DESCRIBE, GROUP, "g"), (DESCRIBE, TOPIC, "t"), (DELETE, GROUP, "g")),
    _consumers(1, "g", include_authorized_operations=True),
    _consumers(1, "long", "g"),
    _consumer(1, "m9", 0),
    _consumer(1, "m9", 0, subscribed_topic_names=["t"]),
    rules((READ, GROUP, "g"), (DESCRIBE, GROUP, "g"), (DESCRIBE, TOPIC, "t"), (DESCRIBE, TOPIC, "u")),
    _consumers(1, "g", include_authorized_operations=True),
    settings(group_coordinator_rebalance_protocols="classic"),
    _consumers(1, "g", ""),
    _consumer(1, "m9", 6),
)  # fmt: skip

STORIES: Final[dict[str, Story]] = {
    "classic": CLASSIC,
    "offsets": OFFSETS,
    "consumers": CONSUMERS_OF,
}

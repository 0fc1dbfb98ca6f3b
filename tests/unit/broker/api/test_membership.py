"""JoinGroup and SyncGroup: the fields of each version, and the names of members."""

from __future__ import annotations

import asyncio
import datetime
from typing import Any

import pytest

from faust_assigner.broker import limits
from faust_assigner.broker.housekeeping import expire
from tests.support.asking import ask
from tests.support.hall import Hall, in_hall

JOIN, HEARTBEAT, LEAVE, SYNC = 11, 12, 13, 14
INCONSISTENT_PROTOCOL, UNKNOWN_MEMBER = 23, 25
SECOND = datetime.timedelta(seconds=1)


async def joined(hall: Hall, version: int, **more: Any) -> Any:
    """Return the answer to a static member's first JoinGroup after the join phase."""
    values = {
        "group_id": "g",
        "session_timeout": 10 * SECOND,
        "rebalance_timeout": SECOND,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"m"}],
        **more,
    }
    asked = asyncio.ensure_future(ask(hall, JOIN, version, **values))
    for _ in range(20):
        await asyncio.sleep(0)
    hall.node.groups.tick("g")
    return await asked


@pytest.mark.parametrize(("instance", "prefix"), [("worker-1", "worker-1-"), (None, "raw-")])
def test_a_member_is_named_after_its_instance_or_else_after_its_client(
    instance: str | None, prefix: str
) -> None:
    """An operator recognises the member in a list by this name."""

    async def story(hall: Hall) -> str:
        return str((await joined(hall, 5, group_instance_id=instance)).member_id)

    assert in_hall(story).startswith(prefix)


@pytest.mark.parametrize(
    ("version", "protocol", "error"),
    [
        (4, {}, UNKNOWN_MEMBER),
        (5, {"protocol_type": None, "protocol_name": None}, INCONSISTENT_PROTOCOL),
        (5, {"protocol_type": "consumer", "protocol_name": None}, INCONSISTENT_PROTOCOL),
        (5, {"protocol_type": "consumer", "protocol_name": "range"}, UNKNOWN_MEMBER),
    ],
)
def test_a_sync_names_its_protocol_since_version_5(
    version: int, protocol: dict[str, str | None], error: int
) -> None:
    """KIP-559: older versions do not have the fields."""

    async def story(hall: Hall) -> int:
        answer = await ask(
            hall, SYNC, version, group_id="g", generation_id=1, member_id="m",
            group_instance_id=None, assignments=[], **protocol,
        )  # fmt: skip
        return int(answer.error_code)

    assert in_hall(story) == error


@pytest.mark.parametrize(("version", "name"), [(6, ""), (7, None)])
def test_a_refused_join_names_no_protocol(version: int, name: str | None) -> None:
    """The field is empty in old versions and null in new versions."""

    async def story(hall: Hall) -> Any:
        return (
            await joined(hall, version, member_id="ghost", group_instance_id=None)
        ).protocol_name

    assert in_hall(story) == name


def test_a_group_that_handed_out_an_id_waits_for_its_member_to_come_back() -> None:
    """A cleanup in between would make the member start again and again."""

    async def story(hall: Hall) -> list[int]:
        first = await joined(hall, 5, group_instance_id=None)
        sum(expire(hall.node))
        again = await joined(hall, 5, member_id=first.member_id, group_instance_id=None)
        return [int(first.error_code), int(again.error_code)]

    assert in_hall(story) == [79, 0]


@pytest.mark.parametrize(("count", "error"), [(2, 0), (3, 42)])
def test_a_list_of_protocols_has_a_bound(
    count: int, error: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit itself is allowed; one protocol more is refused."""
    monkeypatch.setattr(limits, "MAX_PROTOCOLS_PER_MEMBER", 2)

    async def story(hall: Hall) -> int:
        protocols = [{"name": str(n), "metadata": b"m"} for n in range(count)]
        return int((await joined(hall, 5, protocols=protocols, group_instance_id="i")).error_code)

    assert in_hall(story) == error


@pytest.mark.parametrize(("spare", "error"), [(0, 0), (-1, 42)])
def test_the_metadata_of_a_member_has_a_bound(spare: int, error: int) -> None:
    """Otherwise each member could keep the 16 MB of a request in the broker's memory."""

    async def story(hall: Hall) -> int:
        most = 4 * hall.node.settings.message_max_bytes + 3
        sizes = {"a": 1_000, "b": most - 1_000 - spare}
        protocols = [{"name": name, "metadata": bytes(size)} for name, size in sizes.items()]
        return int((await joined(hall, 5, protocols=protocols, group_instance_id="i")).error_code)

    assert in_hall(story) == error


# -- the event of each version -------------------------------------------------------------------


def told_by(api_key: int, version: int, **values: Any) -> Any:
    """Return the event of a request."""

    async def story(hall: Hall) -> Any:
        events: list[Any] = []

        def asked(group_id: str, event_for: Any, answer: Any, creator: Any = None) -> None:
            events.append(event_for(1))
            raise LookupError("asked")

        def beaten(group_id: str, event: Any) -> Any:
            events.append(event)
            raise LookupError("asked")

        hall.node.groups.ask = asked  # type: ignore[method-assign]
        hall.node.groups.heartbeat = beaten  # type: ignore[method-assign]
        await ask(hall, api_key, version, group_id="g", **values)
        return events[0]

    return in_hall(story)


@pytest.mark.parametrize("version", range(10))
def test_a_join_says_what_its_version_can_say(version: int) -> None:
    """Version 4 has an id for a second join (KIP-394), 8 a reason, 9 a leader that skips."""
    values = {
        "session_timeout": 10 * SECOND,
        "rebalance_timeout": SECOND,
        "member_id": "m",
        "protocol_type": "consumer",
        "protocols": [],
        "reason": "why",
    }
    event = told_by(JOIN, version, **values)
    assert event.needs_known_id == (version >= 4)
    assert event.reason == ("why" if version >= 8 else None)
    assert event.can_skip_assignment == (version >= 9)
    assert event.rebalance_timeout_ms == (1_000 if version >= 1 else 10_000)


@pytest.mark.parametrize("version", [2, 3])
def test_a_heartbeat_names_its_instance_since_version_3(version: int) -> None:
    """The instance id fences a replaced static member (KIP-345)."""
    event = told_by(HEARTBEAT, version, generation_id=1, member_id="m", group_instance_id="i")
    assert event.instance_id == ("i" if version >= 3 else None)


@pytest.mark.parametrize("version", [4, 5])
def test_who_leaves_says_why_since_version_5(version: int) -> None:
    """KIP-800: the broker logs the reason."""
    member = {"member_id": "m", "group_instance_id": "i", "reason": "why"}
    (leaver,) = told_by(LEAVE, version, members=[member]).leavers
    assert (leaver.instance_id, leaver.reason) == ("i", "why" if version >= 5 else None)

"""Which answers are kept, and which requests and answers are long enough for a thread."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest

from faust_assigner.broker import limits, throttle
from faust_assigner.broker.api import consumer_groups, metadata, offset_commit
from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import CommitOffsets
from faust_assigner.coordinator.group_views import GroupView, MemberView
from faust_assigner.coordinator.offsets import Committed
from tests.support.asking import ask, read
from tests.support.hall import Hall, frames, in_hall
from tests.unit.broker.api.test_events import SECOND, T, U, answered

METADATA = 3


@dataclass
class _Topic:
    """A reported topic."""

    topic_id: uuid.UUID
    partitions: tuple[int, ...]


@pytest.mark.parametrize(("count", "kept"), [(2, 1), (3, 0)])
def test_an_answer_for_more_topics_than_the_limit_is_not_kept(
    count: int, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request of exactly the limit is kept, and one for all topics, however many there are."""
    monkeypatch.setattr(metadata, "CACHED_TOPICS", 2)

    async def story(hall: Hall) -> list[int]:
        names = [f"t{number}" for number in range(count)]
        for name in names:
            hall.node.catalogue.create(name, 1, {})
        found = []
        for asked in ([{"name": name} for name in names], None):
            await ask(hall, METADATA, 9, topics=asked, allow_auto_topic_creation=False)
            found.append(len(hall.node.metadata_cache._frames))
        return found

    assert in_hall(story) == [kept, kept + 1]


def test_clients_that_create_topics_do_not_hold_up_the_client_that_makes_their_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each step is long. Each client but the last creates a topic, so all places are taken."""
    count = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: next(count) * 2 * throttle.SLICE_S)
    monkeypatch.setattr(throttle, "time", clock)
    topics = [{"name": f"t{number}"} for number in range(throttle.LONG_AT_A_TIME)]

    async def story(hall: Hall) -> list[int]:
        for number in range(throttle.LONG_AT_A_TIME + 1):
            asked = next(frames(METADATA, 1, 9, topics=topics, allow_auto_topic_creation=True))
            hall.connect(str(number))[0].data_received(asked)
        for _ in range(1_000):
            await asyncio.sleep(0)
        return [len(read(METADATA, 9, answer).topics) for _, answer in hall.written]

    assert in_hall(story) == [throttle.LONG_AT_A_TIME] * (throttle.LONG_AT_A_TIME + 1)


@pytest.mark.parametrize(
    ("elements", "size", "crunched"), [(1_000, 10_000, 0), (10, 10_000, 1), (1_000, 10, 1)]
)
def test_long_metadata_are_encoded_in_a_thread(
    elements: int, size: int, crunched: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many elements, or many bytes of names; the answer is the same."""
    monkeypatch.setattr(limits, "INLINE_ELEMENTS", elements)
    monkeypatch.setattr(limits, "INLINE_BYTES", size)

    async def story(hall: Hall) -> tuple[list[str], int]:
        for number in range(12):
            hall.node.catalogue.create(f"topic-{number}", 1, {})
        crunch, count = hall.node.crunch, 0

        def counted(work: Any) -> Any:
            nonlocal count
            count += 1
            return crunch(work)

        hall.node.crunch = counted  # type: ignore[method-assign]
        answer = await ask(hall, METADATA, 9, topics=None, allow_auto_topic_creation=False)
        return [topic.name for topic in answer.topics], count

    assert in_hall(story) == ([f"topic-{number}" for number in range(12)], crunched)


def test_a_client_learns_the_address_of_its_own_listener() -> None:
    """The broker's other listener has another host and another port."""

    async def story(hall: Hall) -> list[tuple[str, int]]:
        hall.node.listen_on("plain", 1)
        hall.node.listen_on("safe", 2, "SSL")
        found = []
        for protocol in ("SSL", "PLAINTEXT"):
            peer, wire = hall.connect("peer", protocol)
            wire.written = mine = []
            peer.data_received(next(frames(METADATA, 1, 9, topics=[])))
            while not mine:
                await asyncio.sleep(0)
            (broker,) = read(METADATA, 9, b"".join(data for _, data in mine)).brokers
            found.append((broker.host, broker.port))
        return found

    assert in_hall(story) == [("safe", 2), ("plain", 1)]


@pytest.mark.parametrize(("chars", "kept"), [(256, 1), (257, 0)])
async def test_the_answer_to_a_calm_heartbeat_is_kept_unless_its_member_id_is_long(
    chars: int, kept: int
) -> None:
    """A few long ids would fill the memory."""
    consumer_groups._unchanged_answer.cache_clear()
    reply = fx.ConsumerHeartbeatReply(1, Code.NONE, None, "m" * chars, 5, 4_000, None)
    found = await answered(
        reply, consumer_groups.consumer_group_heartbeat, 1, member_id="m", member_epoch=4,
        instance_id=None, rack_id=None, rebalance_timeout=SECOND, subscribed_topic_names=None,
        server_assignor=None, topic_partitions=None,
    )  # fmt: skip
    answer = read(68, 1, found.frame)
    assert (answer.member_id, answer.member_epoch) == ("m" * chars, 5)
    assert (answer.heartbeat_interval, answer.assignment) == (4 * SECOND, None)
    assert consumer_groups._unchanged_answer.cache_info().currsize == kept


@pytest.mark.parametrize(
    ("epoch", "sizes", "crunched", "found"),
    [
        (1, (2, 1), 0, {0: (0, 1), 1: (0,)}),
        (1, (2, 2), 1, {0: (0, 1), 1: (0, 1)}),
        (-1, (4, 0), 1, {0: (0, 1, 2, 3)}),
        (0, (0, 9), 0, {1: (0,)}),
        (0, (0, 0), 0, {}),
        (0, (), 0, {}),
    ],
)
async def test_a_long_report_is_sorted_in_a_thread_and_a_joining_member_s_cut_to_one_partition(
    epoch: int, sizes: tuple[int, ...], crunched: int, found: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The partitions of all topics count; a joining member owns nothing."""
    monkeypatch.setattr(consumer_groups, "INLINE_ELEMENTS", 3)
    works: list[Any] = []

    async def crunch(work: Any) -> Any:
        works.append(work)
        return work()

    call = cast(Any, SimpleNamespace(node=SimpleNamespace(crunch=crunch)))
    topics = [_Topic((T, U)[n], tuple(reversed(range(size)))) for n, size in enumerate(sizes)]
    if epoch == 0:
        topics = [_Topic(one.topic_id, one.partitions[::-1]) for one in topics]
    request = SimpleNamespace(topic_partitions=topics, member_epoch=epoch)
    owned = await consumer_groups._owned_partitions(call, request)
    assert owned == {(T, U)[n].bytes: numbers for n, numbers in found.items()}
    assert len(works) == crunched
    assert (
        await consumer_groups._owned_partitions(call, SimpleNamespace(topic_partitions=None))
        is None
    )


# -- described groups ----------------------------------------------------------------------------


def _member(name: str, **more: Any) -> MemberView:
    usual = {"subscribed_topic_names": ("seen",), "assigned": {T.bytes: (1, 3)}}
    protocol = more.pop("protocol", "consumer")
    return MemberView(name, None, "c", "/h", protocol, 4, 5_000, **{**usual, **more})


async def _described(hidden: str | None, *members: MemberView) -> Any:
    view = GroupView("g", "consumer", "Stable", "consumer", "uniform", 7, 6, "", members)
    group = SimpleNamespace(group_type="consumer", describe=lambda: view)
    names = {T: "seen", U: "other"}
    catalogue = SimpleNamespace(
        by_id=lambda one: SimpleNamespace(topic_id=one, name=names[one]) if one in names else None
    )
    node = SimpleNamespace(
        settings=SimpleNamespace(serves_consumer_protocol=True), authorizer=object(),
        groups=SimpleNamespace(get=lambda group_id: group), catalogue=catalogue,
    )  # fmt: skip
    call = cast(Any, SimpleNamespace(node=node, may=lambda op, kind, name: name != hidden))
    return consumer_groups._describe(call, "g")


@pytest.mark.parametrize(
    "more",
    [
        {"subscribed_topic_names": ("seen", "other")},
        {"assigned": {U.bytes: (0,)}},
        {"revoking": {U.bytes: (0,)}},
        {"target": {T.bytes: (1,), U.bytes: (0,)}},
    ],
)
@pytest.mark.parametrize("last", [True, False])
async def test_each_topic_of_each_member_hides_the_group_from_a_client_that_may_not_describe_it(
    more: dict[str, Any], last: bool
) -> None:
    """A topic of the subscription, of the assignment, under revocation, or of the target."""
    members = (_member("m"), _member("n", **more))
    members = members if last else members[::-1]
    assert (await _described(None, *members))["error_code"] == 0
    refused = await _described("other", *members)
    assert refused == {
        "group_id": "g", "error_code": 29, "error_message": consumer_groups.HIDDEN_TOPICS
    }  # fmt: skip


async def test_a_described_member_has_its_partitions_with_those_under_revocation_and_its_target() -> (
    None
):
    """The target differs from the assignment; a deleted topic is left out; the view is not changed."""
    member = _member(
        "m", rack_id="r", subscribed_topic_regex="a.*", revoking={T.bytes: (900, 2), U.bytes: (8, 5)},
        target={U.bytes: (4,), bytes(16): (0,), T.bytes: ()},
    )  # fmt: skip
    group = await _described(None, member, _member("n", protocol="classic"))
    assert [one["member_type"] for one in group["members"]] == [1, 0]
    assert (group["group_epoch"], group["assignment_epoch"]) == (7, 6)
    found = group["members"][0]
    assert found["assignment"]["topic_partitions"] == [
        {"topic_id": T, "topic_name": "seen", "partitions": (1, 2, 3, 900)},
        {"topic_id": U, "topic_name": "other", "partitions": (5, 8)},
    ]
    assert found["target_assignment"]["topic_partitions"] == [
        {"topic_id": U, "topic_name": "other", "partitions": (4,)},
        {"topic_id": T, "topic_name": "seen", "partitions": ()},
    ]
    assert member.assigned == {T.bytes: (1, 3)}
    assert consumer_groups._member_size(found) == 300 + 4 * 7


# -- offsets -----------------------------------------------------------------------------------


def test_each_slice_of_a_long_commit_has_its_own_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """No offset is written twice, and none after the first slice that is refused."""
    monkeypatch.setattr(offset_commit, "COMMITTED_AT_ONCE", 2)

    async def story(hall: Hall) -> Any:
        hall.node.catalogue.create("t", 5, {})
        hall.node.groups.ask("g", CommitOffsets, lambda reply: None)
        slices: list[list[int]] = []
        verdicts = [Code.NONE, Code.NONE, Code.NONE, Code.NONE, Code.INVALID_REQUEST]

        def commit(group_id: str, changes: dict[tuple[str, int], Committed]) -> Code:
            slices.append([number for _, number in changes])
            return verdicts[len(slices) - 1]

        hall.node.groups.books.commit = commit  # type: ignore[method-assign]
        found = []
        for _ in range(2):
            parts = [
                {"partition_index": n, "committed_offset": n, "committed_metadata": ""}
                for n in (4, 0, 3, 1, 2)
            ]
            answer = await ask(
                hall, 8, 5, group_id="g", generation_id_or_member_epoch=-1, member_id="",
                topics=[{"name": "t", "partitions": parts}],
            )  # fmt: skip
            found.append({int(part.error_code) for part in answer.topics[0].partitions})
        return slices, found

    slices, found = in_hall(story)
    assert slices == [[4, 0], [3, 1], [2], [4, 0], [3, 1]]
    assert found == [{0}, {42}]

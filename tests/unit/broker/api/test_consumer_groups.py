"""ConsumerGroupDescribe: the members' assignments, their targets, and the topics of both."""

from __future__ import annotations

import datetime
from typing import Any

from tests.support.asking import ask
from tests.support.hall import Hall, in_hall

HEARTBEAT, DESCRIBE, COMMIT = 68, 69, 8
STALE_EPOCH = 113
MINUTE = datetime.timedelta(minutes=1)


async def beats(hall: Hall, member: str, epoch: int, **said: Any) -> int:
    """Send a heartbeat of a member of "g" that reads "t" and "u"; return the member's epoch."""
    values = {
        "group_id": "g",
        "member_id": member,
        "member_epoch": epoch,
        "instance_id": None,
        "rack_id": None,
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "rebalance_timeout": MINUTE,
        "subscribed_topic_names": ["t", "u"] if epoch == 0 else None,
        "topic_partitions": [] if epoch == 0 else None,
        **said,
    }
    return int((await ask(hall, HEARTBEAT, 1, **values)).member_epoch)


async def described(hall: Hall) -> dict[str, tuple[dict[str, int], dict[str, int]]]:
    """Return each member's numbers of assigned and targeted partitions, by topic."""
    answer = await ask(hall, DESCRIBE, 1, group_ids=("g",))
    (group,) = answer.groups

    def counts(side: Any) -> dict[str, int]:
        return {each.topic_name: len(each.partitions) for each in side.topic_partitions}

    return {
        member.member_id: (counts(member.assignment), counts(member.target_assignment))
        for member in group.members
    }


def test_a_member_holds_what_it_was_asked_to_give_up_until_it_says_otherwise() -> None:
    """The member may still be processing the partitions."""

    async def story(hall: Hall) -> Any:
        hall.node.catalogue.create("t", 4, {})
        hall.node.catalogue.create("u", 2, {})
        at_once = {"consumer.assignment.interval.ms": "0"}
        hall.node.group_configs.configure("g", at_once, validate_only=False)
        epoch = await beats(hall, "m1", 0)
        await beats(hall, "m2", 0)
        await beats(hall, "m1", epoch)
        return await described(hall)

    found = in_hall(story)
    assert [found[member][0] for member in ("m1", "m2")] == [{"t": 4, "u": 2}, {}]
    assert [sum(found[member][1].values()) for member in ("m1", "m2")] == [3, 3]


def test_a_topic_that_is_gone_is_left_out() -> None:
    """The id of a deleted topic has no name."""

    async def story(hall: Hall) -> Any:
        hall.node.catalogue.create("t", 4, {})
        topic = hall.node.catalogue.create("u", 2, {})
        await beats(hall, "m1", 0)
        hall.node.catalogue.delete(topic)
        return await described(hall)

    assert in_hall(story) == {"m1": ({"t": 4}, {"t": 4})}


def test_the_epoch_of_the_assignment_is_told_apart_from_the_groups() -> None:
    """The second member has joined, and the new target waits for its interval."""

    async def story(hall: Hall) -> tuple[int, int]:
        hall.node.catalogue.create("t", 4, {})
        await beats(hall, "m1", 0)
        await beats(hall, "m2", 0)
        (group,) = (await ask(hall, DESCRIBE, 1, group_ids=("g",))).groups
        return group.group_epoch, group.assignment_epoch

    assert in_hall(story) == (3, 2)


def test_a_late_commit_is_weighed_by_the_partitions_that_it_is_for() -> None:
    """The old epoch may commit a kept partition, but not a revoked partition."""

    async def story(hall: Hall) -> list[int]:
        topic = hall.node.catalogue.create("t", 2, {})
        at_once = {"consumer.assignment.interval.ms": "0"}
        hall.node.group_configs.configure("g", at_once, validate_only=False)
        first = await beats(hall, "m1", 0)
        await beats(hall, "m2", 0)
        await beats(hall, "m1", first)
        (kept,) = next(iter(hall.node.groups.get("g").book.at("m1").assigned.values()))  # type: ignore[union-attr]
        held = [{"topic_id": topic.topic_id, "partitions": (kept,)}]
        assert await beats(hall, "m1", first, topic_partitions=held) > first
        errors = []
        for number in (kept, 1 - kept):
            part = {
                "partition_index": number,
                "committed_offset": 5,
                "committed_leader_epoch": -1,
                "committed_metadata": "",
            }
            answer = await ask(
                hall, COMMIT, 9, group_id="g", generation_id_or_member_epoch=first, member_id="m1",
                group_instance_id=None, topics=[{"name": "t", "partitions": [part]}],
            )  # fmt: skip
            errors.append(int(answer.topics[0].partitions[0].error_code))
        return errors

    assert in_hall(story) == [0, STALE_EPOCH]


def test_each_record_of_a_group_counts_for_itself_against_the_largest_message() -> None:
    """As in Kafka, a join writes several records; only a record that is too large is refused."""

    async def story(hall: Hall) -> list[int]:
        hall.node.catalogue.create("t", 4, {})
        found = []
        for largest, group in ((50, "small"), (400, "g")):
            hall.node.groups._saver.max_record_bytes = largest
            found.append(await beats(hall, "m1", 0, group_id=group))
        written = [len(value) for _, value in hall.node.store.scan(b"m")]
        assert max(written) <= 400 < sum(written)
        return found

    assert in_hall(story) == [0, 2]


def test_a_group_that_is_gone_is_not_measured_on() -> None:
    """A later group of the same name starts a new measurement."""

    async def story(hall: Hall) -> bool:
        hall.node.catalogue.create("t", 4, {})
        await beats(hall, "m1", 0)
        hall.node.groups.meter.state_seen("g", "Reconciling", 0, "a join")
        hall.node.groups._forget("g")
        return "g" in hall.node.groups.meter._unsettled

    assert not in_hall(story)

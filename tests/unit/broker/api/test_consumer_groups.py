"""ConsumerGroupDescribe: what members hold, shall hold, and of which topics."""

from __future__ import annotations

import datetime
from typing import Any

from tests.support.asking import ask
from tests.support.hall import Hall, in_hall

HEARTBEAT, DESCRIBE = 68, 69
MINUTE = datetime.timedelta(minutes=1)


async def beats(hall: Hall, member: str, epoch: int, **said: Any) -> int:
    """One heartbeat of a member of "g" that reads "t" and "u"; its epoch afterwards."""
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
    """Member -> how many partitions of each topic it holds, and shall hold."""
    answer = await ask(hall, DESCRIBE, 1, group_ids=("g",))
    (group,) = answer.groups

    def counts(side: Any) -> dict[str, int]:
        return {each.topic_name: len(each.partitions) for each in side.topic_partitions}

    return {
        member.member_id: (counts(member.assignment), counts(member.target_assignment))
        for member in group.members
    }


def test_a_member_holds_what_it_was_asked_to_give_up_until_it_says_otherwise() -> None:
    """It may still be processing those partitions."""

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
    """Its id has no name any more."""

    async def story(hall: Hall) -> Any:
        hall.node.catalogue.create("t", 4, {})
        topic = hall.node.catalogue.create("u", 2, {})
        await beats(hall, "m1", 0)
        hall.node.catalogue.delete(topic)
        return await described(hall)

    assert in_hall(story) == {"m1": ({"t": 4}, {"t": 4})}


def test_the_epoch_of_the_assignment_is_told_apart_from_the_groups() -> None:
    """The second member is in, and the target for both waits for its interval."""

    async def story(hall: Hall) -> tuple[int, int]:
        hall.node.catalogue.create("t", 4, {})
        await beats(hall, "m1", 0)
        await beats(hall, "m2", 0)
        (group,) = (await ask(hall, DESCRIBE, 1, group_ids=("g",))).groups
        return group.group_epoch, group.assignment_epoch

    assert in_hall(story) == (3, 2)

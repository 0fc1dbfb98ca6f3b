"""The second session of a process: its time, its request and its messages are its own."""

from __future__ import annotations

import asyncio

from faust_assigner.service.client import Assigned, Grant, TopicPartition
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from tests.unit.service.test_client_heart import Instances, first, held, unanswered

T0 = TopicPartition("t", 0)


def test_a_later_session_counts_from_its_own_request() -> None:
    """Not from the first one's, and not from the start of the clock."""
    granting = first("s1", 12.0)
    granting.assignment.assigned.add(topic="t", partition=0)
    granting.assignment.grants.add(partition=pb.TopicPartition(topic="t"), epoch=5)
    grant = Grant(T0, 5)

    async def story(i: Instances) -> None:
        seen: list[tuple[str, float]] = []
        i.streamed.begun = lambda: seen.append((session.id, holdings.until))
        holding = asyncio.create_task(i.streamed.hold())
        session, holdings = i.stage.session, i.stage.holdings
        await asyncio.sleep(5.5)
        assert (session.id, session.lives_s, session.count, holdings.until) == ("s1", 12.0, 1, 12.0)
        assert (session.is_registered, i.streamed.request().epoch) == (False, 5)
        await asyncio.sleep(0.5)
        assert (session.id, session.lives_s, session.count) == ("s2", 20.0, 2)
        assert (session.is_registered, i.streamed.request().epoch) == (True, 5)
        assert i.begun == [(0.0, "x:1", False), (5.25, "y:1", True)]
        assert (holdings.until, session.left_s) == (25.25, 19.25)
        assert i.stage.sent == []
        assert i.stage.told() == [Assigned({T0: grant}, (grant,)), Assigned({}, (), (T0,))]
        assert seen == [("s1", 12.0), ("s2", 25.25)]
        holding.cancel()
        await asyncio.gather(holding, return_exceptions=True)

    held(story, (5.25, [granting], unanswered()), (0.5, [first("s2", 20.0)], 100.0))

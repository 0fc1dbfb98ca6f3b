"""The parts of the client: holdings, inbox, session and requests."""

from __future__ import annotations

import asyncio
import math
import random
from pathlib import Path
from typing import Any

import pytest

from faust_assigner.errors import ConfigError
from faust_assigner.service.client import (
    AbortWarm,
    Access,
    Assigned,
    Grant,
    Lost,
    Registration,
    Release,
    Retry,
    Standbys,
    TopicPartition,
    Warm,
)
from faust_assigner.service.client import requests as room
from faust_assigner.service.client.holdings import Holdings
from faust_assigner.service.client.inbox import Inbox
from faust_assigner.service.client.messages import by_topic, grants_of, other_command
from faust_assigner.service.client.requests import Requests
from faust_assigner.service.client.session import Session
from faust_assigner.service.digest import Held, digest_of
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from tests.support.waiting import PATIENCE_S

T0, T1, T2, U0 = (*(TopicPartition("t", n) for n in range(3)), TopicPartition("u", 0))
RELEASE, STRICT = Release(T0, "b", 7), Release(T0, "b", 8, strict=True)


def grants(**epochs: int) -> list[Grant]:
    """Build grants: t0=5 is partition 0 of "t" under epoch 5."""
    return [Grant(TopicPartition(name[0], int(name[1:])), epoch) for name, epoch in epochs.items()]


def owned(**epochs: int) -> dict[TopicPartition, Grant]:
    """Build grants by partition."""
    return {grant.partition: grant for grant in grants(**epochs)}


def digest(**epochs: int) -> Held:
    """The digest of these grants."""
    return digest_of((*grant.partition, grant.epoch) for grant in grants(**epochs))


def test_each_update_is_told_as_a_difference() -> None:
    """A partition under a new epoch is added and removed; an equal grant is in neither list."""
    h = Holdings()
    assert h.update(grants(t0=5, t1=5), ()) == Assigned(
        owned(t0=5, t1=5), tuple(grants(t0=5, t1=5))
    )
    assert h.update(grants(t1=5, t2=6), [T0, U0]) == Assigned(
        owned(t1=5, t2=6), tuple(grants(t2=6)), (T0,)
    )
    assert h.update(grants(t1=9), ()) == Assigned(owned(t1=9, t2=6), tuple(grants(t1=9)), (T1,))
    assert h.update((), ()) == Assigned(owned(t1=9, t2=6))
    assert (h.highest, h.epoch(T1), h.epoch(T0), h.held()) == (9, 9, 0, digest(t1=9, t2=6))
    h.update(grants(t0=3), [T1, T2])
    assert (h.highest, h.former(), h.at_work()) == (9, (T0,), (T0,))


def test_a_snapshot_in_parts_replaces_everything_but_the_partitions_to_release() -> None:
    """The last part completes the change; a second snapshot discards the first."""
    h = Holdings()
    h.update(grants(t0=1, t1=2, t2=3), ())
    assert h.update(grants(u0=4), [T0], snapshot=True, more=True, releasing=[T1]) is None
    assert (h.owned, h.held()) == (owned(t0=1, t1=2, t2=3), None)
    assert h.update(grants(u1=9), (), snapshot=True, more=True, releasing=[T2, U0]) is None
    assert h.update(grants(t0=1), (), more=True) is None
    u1 = TopicPartition("u", 1)
    assert h.update((), ()) == Assigned(owned(t2=3, u1=9, t0=1), tuple(grants(u1=9)), (T1,))
    assert h.held() == digest(t2=3, u1=9, t0=1)
    assert h.update(grants(t1=4), [u1]) == Assigned(
        owned(t2=3, t0=1, t1=4), tuple(grants(t1=4)), (u1,)
    )


def test_a_partition_in_release_is_held_until_it_is_released() -> None:
    """The partition is at work but not in the digest; only the newest release ends it."""
    h = Holdings()
    h.begin(100.0)
    h.update(grants(t0=1, t1=2), ())
    assert h.held() == digest(t0=1, t1=2)
    h.release(RELEASE)
    assert (h.held(), h.at_work(), h.may_work(T0, 99.0)) == (digest(t1=2), (T0, T1), True)
    assert h.update((), [T0]) == Assigned(owned(t1=2))
    assert (h.at_work(), h.may_work(T0, 99.0), h.former()) == ((T0, T1), True, (T1,))
    h.release(STRICT)
    h.released(RELEASE)
    assert h.at_work() == (T0, T1)
    h.released(STRICT)
    assert (h.at_work(), h.may_work(T0, 99.0), h.held()) == ((T1,), False, digest(t1=2))
    h.release(Release(T1, "b", 9))
    h.released(Release(T1, "b", 9))
    assert (h.owned, h.held(), h.at_work()) == ({}, Held(), ())


def test_a_partition_granted_during_its_release_is_worked_on_again() -> None:
    """The partition is added, even under the same epoch; its old release no longer ends it."""
    h = Holdings()
    h.update(grants(t0=1, t1=2), ())
    h.release(RELEASE)
    again = [Grant(T0, 1, keep=True)]
    assert h.update(again, ()) == Assigned({T1: Grant(T1, 2), T0: again[0]}, tuple(again))
    h.released(RELEASE)
    assert (h.at_work(), h.held()) == ((T0, T1), digest(t0=1, t1=2))


def test_a_session_that_is_over_loses_everything_once() -> None:
    """The session ends exactly on time; former partitions are kept until the next assignment."""
    h = Holdings()
    h.begin(100.0)
    assert h.expire(200.0) is None
    h.update(grants(t1=2, t0=1, t2=3), ())
    h.release(Release(T2, "b", 1))
    h.update((), [T2])
    assert (h.expire(99.9), h.may_work(T0, 99.9), h.may_work(T0, 100.0)) == (None, True, False)
    assert h.expire(100.0) == Lost((T0, T1, T2))
    assert (h.expire(100.0), h.owned, h.held(), h.former()) == (None, {}, Held(), (T0, T1))
    h.update((), (), snapshot=True)
    assert h.former() == (T0, T1)
    h.begin(300.0)
    h.release(Release(T2, "b", 1))
    assert (h.expire(299.9), h.expire(300.0), h.former()) == (None, Lost((T2,)), ())
    h.begin(400.0)
    h.update(grants(u0=9), ())
    h.update((), [U0])
    assert h.former() == ()


def test_the_end_of_a_session_only_moves_on_until_the_next_one_begins() -> None:
    """A late answer does not shorten it; a new session may, and discards an incomplete snapshot."""
    h = Holdings()
    h.update(grants(t0=1), ())
    assert h.until == -math.inf
    h.begin(50.0)
    h.confirm(40.0)
    assert h.until == 50.0
    h.confirm(60.0)
    h.update(grants(t1=1), (), snapshot=True, more=True)
    h.begin(30.0)
    assert (h.until, h.held()) == (30.0, digest(t0=1))
    assert h.update(grants(t2=2), ()) == Assigned(owned(t0=1, t2=2), tuple(grants(t2=2)))


# -- the inbox ---------------------------------------------------------------------------------------


class Box:
    """An inbox, and the acknowledgements that it repeats."""

    def __init__(self) -> None:
        self.holdings = Holdings()
        self.repeated: list[tuple[str, Any]] = []
        self.inbox = Inbox(
            self.holdings, lambda method, request: self.repeated.append((method, request))
        )

    def take(self, *, is_first: bool = False, **said: Any) -> list[Any]:
        """Take a message; return the new commands."""
        self.inbox.take(pb.AssignmentCommand(**said), is_first=is_first)
        return list(self.inbox.remaining_commands())


def place(partition: TopicPartition) -> pb.TopicPartition:
    """A partition as a message."""
    return pb.TopicPartition(topic=partition.topic, partition=partition.partition)


WARM = pb.WarmPartition(partition=place(T1), current_owner="b", handoff_id=3, strict=True)
ASKED = pb.ReleasePartition(partition=place(T0), new_owner="b", handoff_id=7)


def test_messages_become_commands_and_a_message_without_news_does_not() -> None:
    """The first assignment of a stream is a snapshot, even if it is empty."""
    box = Box()
    some = pb.AssignmentUpdate(
        assigned=[place(T0)], grants=[pb.Grant(partition=place(T0), epoch=5)]
    )
    assert box.take(is_first=True, assignment=some) == [Assigned(owned(t0=5), tuple(grants(t0=5)))]
    assert box.take(assignment=some) == []
    more = pb.AssignmentUpdate(assigned=[place(T1)], more=True, snapshot=True)
    assert box.take(assignment=more) == []
    rest = pb.AssignmentUpdate(assigned=[place(T2)])
    assert box.take(assignment=rest) == [
        Assigned(owned(t1=0, t2=0), tuple(grants(t1=0, t2=0)), (T0,))
    ]
    assert box.take(assignment=pb.AssignmentUpdate(unassigned=[place(T1)])) == [
        Assigned(owned(t2=0), (), (T1,))
    ]
    assert box.take(warm=WARM) == [Warm(T1, "b", 3, strict=True)]
    assert box.take(abort_warm=pb.AbortWarm(partition=place(T1), handoff_id=3)) == [
        AbortWarm(T1, 3)
    ]
    assert box.take(pulse=pb.Pulse()) == []
    assert box.take(is_first=True, assignment=pb.AssignmentUpdate()) == [Assigned({}, (), (T2,))]
    assert box.take(is_first=True, assignment=pb.AssignmentUpdate()) == [Assigned({})]


def test_standbys_in_parts_are_one_command() -> None:
    """A new stream discards incomplete standbys."""
    box = Box()
    assert box.take(standby=pb.StandbyUpdate(standbys=[place(T0)], more=True)) == []
    box.inbox.begin()
    assert box.take(standby=pb.StandbyUpdate(standbys=[place(T1)], more=True)) == []
    assert box.take(standby=pb.StandbyUpdate(standbys=[place(T2)])) == [Standbys((T1, T2))]
    assert box.take(standby=pb.StandbyUpdate()) == [Standbys(())]


def test_a_repeated_command_repeats_its_acknowledgement_alone() -> None:
    """The acknowledgement must match in kind and partition; a new command discards it."""
    box = Box()
    warm = Warm(T1, "b", 3, strict=True)
    assert box.take(warm=WARM) == [warm]
    assert (box.take(warm=WARM), box.repeated) == ([], [])
    box.inbox.acknowledged(warm, "PartitionReady", "r1")
    box.inbox.acknowledged(Release(T1, "b", 3), "PartitionReleased", "r2")
    assert (box.take(warm=WARM), box.repeated) == ([], [("PartitionReady", "r1")])
    later = pb.WarmPartition(partition=place(T1), current_owner="b", handoff_id=4, strict=True)
    assert box.take(warm=later) == [Warm(T1, "b", 4, strict=True)]
    assert (box.take(warm=later), len(box.repeated)) == ([], 1)
    assert box.take(warm=WARM) == [warm]


def test_a_lost_session_forgets_releases_and_keeps_warm_ups() -> None:
    """The service repeats both; only the release is a new command. An abort forgets the warm-up."""
    box = Box()
    box.take(is_first=True, assignment=pb.AssignmentUpdate(assigned=[place(T0)]))
    assert box.take(release=ASKED) == [RELEASE]
    assert box.holdings.held() == Held()
    box.take(warm=WARM)
    assert (box.take(release=ASKED), box.take(warm=WARM)) == ([], [])
    box.inbox.lose(Lost((T0,)))
    assert list(box.inbox.remaining_commands()) == [Lost((T0,))]
    assert (box.take(release=ASKED), box.take(warm=WARM)) == ([RELEASE], [])
    box.take(abort_warm=pb.AbortWarm(partition=place(T1), handoff_id=3))
    assert (box.take(release=ASKED), box.take(warm=WARM)) == ([], [Warm(T1, "b", 3, strict=True)])


async def test_errors_and_the_end_are_read_in_their_order() -> None:
    """The commands behind the end have no errors."""
    box = Box()
    for said in (RELEASE, ValueError("x"), None, STRICT, None, ValueError("y"), RELEASE):
        box.inbox.put(said)
    assert await box.inbox.read() == RELEASE
    with pytest.raises(ValueError, match="x"):
        await box.inbox.read()
    assert await box.inbox.read() is None
    assert list(box.inbox.remaining_commands()) == [STRICT, RELEASE]


# -- the session ---------------------------------------------------------------------------------------


async def test_a_session_is_that_of_its_first_message_with_its_times() -> None:
    """A previous session past its time is lost before the next session begins."""
    now = [100.0]
    box = Box()
    session = Session(box.holdings, box.inbox, lambda: now[0])
    assert (session.id, session.count, session.lives_s, session.is_alive) == (
        "",
        0,
        math.inf,
        False,
    )
    waiting = asyncio.create_task(session.timed())
    session.begin(pb.AssignmentUpdate(session_id="s0"), until=math.inf)
    await asyncio.sleep(0.01)
    assert (waiting.done(), session.is_alive, session.lives_s) == (False, True, math.inf)
    session.is_registered = False
    assert session.is_alive is False
    session.begin(pb.AssignmentUpdate(session_id="s1", lives_ms=9_000, pulse_ms=1), until=109.0)
    await asyncio.wait_for(waiting, PATIENCE_S)
    assert (session.id, session.count, session.lives_s, session.left_s) == ("s1", 2, 9.0, 9.0)
    box.holdings.update(grants(t0=1), ())
    session.is_registered = False
    now[0] = 108.0
    assert (session.is_alive, session.check_time()) == (True, False)
    now[0] = 109.0
    session.begin(pb.AssignmentUpdate(session_id="s2", lives_ms=9_000), until=117.0)
    assert (list(box.inbox.remaining_commands()), session.left_s) == ([Lost((T0,))], 8.0)
    session.note_message()
    now[0] = 117.0
    assert (session.is_alive, session.is_silent) == (True, False)
    session.is_registered = False
    assert session.is_alive is False


def test_a_stream_that_pulses_is_silent_after_half_of_the_time_to_live() -> None:
    """A stream without pulses is never silent."""
    now = [100.0]
    box = Box()
    session = Session(box.holdings, box.inbox, lambda: now[0])
    for pulse_ms, is_silent in ((1, True), (0, False)):
        said = pb.AssignmentUpdate(session_id="s", lives_ms=10_000, pulse_ms=pulse_ms)
        session.begin(said, until=200.0)
        session.note_message()
        now[0] += 5.0
        assert session.is_silent is False
        now[0] += 0.1
        assert session.is_silent is is_silent


def test_a_session_that_is_given_up_is_lost_at_once() -> None:
    """The session has time left; a second give-up loses nothing."""
    box = Box()
    session = Session(box.holdings, box.inbox, lambda: 100.0)
    session.begin(pb.AssignmentUpdate(session_id="s", lives_ms=10_000), until=110.0)
    box.holdings.update(grants(t0=1), ())
    session.give_up()
    session.give_up()
    assert (list(box.inbox.remaining_commands()), session.left_s) == ([Lost((T0,))], -math.inf)


# -- requests ------------------------------------------------------------------------------------------


def test_a_registration_is_sent_field_by_field(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fields are sorted; partitions owned last come before those on disk, up to the limit."""
    monkeypatch.setattr(room, "MOST_FORMER", 3)
    registration = Registration(
        topics=("u", "t"),
        copartitioned=(("u", "t"), ("x",)),
        rack="r",
        capacity=2.5,
        weights={U0: 3.0, T1: 1.0, T0: 2.0},
        replicas=lambda: [U0, T1, T0],
        keeps_replicas=True,
        former=lambda: [T2, T1, T1, T0, U0],
        endpoint="host:1",
    )
    requests = Requests("c", "i", "g")
    common: dict[str, Any] = {
        "consumer_name": "c",
        "incarnation": "i",
        "group": "g",
        "topics": ["t", "u"],
        "rack": "r",
        "endpoint": "host:1",
        "capacity": 2.5,
        "copartitioned": [{"topics": ["t", "u"]}, {"topics": ["x"]}],
        "weights_by_topic": [
            {"topic": "t", "partitions": [0, 1], "weights": [2.0, 1.0]},
            {"topic": "u", "partitions": [0], "weights": [3.0]},
        ],
        "replicas_by_topic": [
            {"topic": "t", "partitions": [0, 1]},
            {"topic": "u", "partitions": [0]},
        ],
        "keeps_replicas": True,
        "heartbeats": True,
    }
    disk = [{"topic": "t", "partitions": [0, 1, 2]}]
    assert requests.register(registration, returns=False, former=(), epoch=0) == pb.RegisterRequest(
        **common, former=disk
    )
    last = [{"topic": "t", "partitions": [2]}, {"topic": "u", "partitions": [0]}]
    assert requests.register(
        registration, returns=True, former=[U0, T2], epoch=9
    ) == pb.RegisterRequest(**common, former=last, returns=True, epoch=9)


def test_each_request_has_the_process_the_group_and_its_hand_off() -> None:
    """Reasons have at most 1,000 characters; offset 0 counts as an offset."""
    r = Requests("c", "i", "g")
    who: dict[str, Any] = {"consumer_name": "c", "incarnation": "i", "group": "g"}
    warm = Warm(T1, "b", 3)
    of_warm = {**who, "partition": place(T1), "handoff_id": 3}
    of_release = {**who, "partition": place(T0), "handoff_id": 7}
    long = "x" * 1_001
    assert r.ready(warm) == pb.PartitionReadyRequest(**of_warm)
    assert r.failed(warm, long) == pb.WarmFailedRequest(**of_warm, reason=long[:1_000])
    assert r.progress(warm, 0.25) == pb.ReportProgressRequest(**of_warm, progress=0.25)
    for offset in (0, 5, None):
        expected = pb.PartitionReleasedRequest(**of_release, final_offset=offset)
        assert r.released(RELEASE, offset) == expected
        assert expected.HasField("final_offset") is (offset is not None)
    assert r.release_failed(RELEASE, 9, long) == pb.ReleaseFailedRequest(
        **of_release, epoch=9, reason=long[:1_000]
    )
    assert r.replicas([U0, T1, T0]) == pb.ReportReplicasRequest(
        **who,
        replicas_by_topic=[{"topic": "t", "partitions": [0, 1]}, {"topic": "u", "partitions": [0]}],
    )
    assert r.heartbeat("s", Held(2, 99)) == pb.HeartbeatRequest(
        **who, session_id="s", held={"count": 2, "digest": 99}
    )
    assert not r.heartbeat("s", None).HasField("held")
    assert r.farewell() == pb.DeregisterRequest(**who)


def test_messages_are_read_field_by_field() -> None:
    """Grants are matched by partition, not by position; without a grant the epoch is 0."""
    update = pb.AssignmentUpdate(
        assigned=[place(T0), place(T1), place(U0)],
        grants=[
            pb.Grant(partition=place(U0), epoch=9, start_offset=4, keep=True),
            pb.Grant(partition=place(T0), epoch=5),
            pb.Grant(partition=place(T2), epoch=7),
        ],
    )
    assert grants_of(update) == [Grant(T0, 5), Grant(T1), Grant(U0, 9, 4, keep=True)]
    assert other_command(pb.AssignmentCommand(release=ASKED)) == RELEASE
    assert other_command(pb.AssignmentCommand(assignment=update)) is None
    assert by_topic([T1, U0, T0]) == [
        pb.TopicPartitions(topic="t", partitions=[1, 0]),
        pb.TopicPartitions(topic="u", partitions=[0]),
    ]


@pytest.mark.parametrize(
    ("attempt", "most"), [(0, 0.5), (1, 1.0), (3, 4.0), (4, 7.0), (31, 7.0), (10_000, 7.0)]
)
def test_the_waits_between_tries_double_up_to_the_most(attempt: int, most: float) -> None:
    """The wait is a random part of the limit."""

    class Chance(random.Random):
        """Returns its limits."""

        def uniform(self, a: float, b: float) -> float:
            """Return the sum of both limits."""
            return a + b

    assert Retry(first_s=0.5, most_s=7.0).wait(attempt, Chance()) == most


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (("ca", "cert"), "require each other"),
        (("ca", "key"), "require each other"),
        (("cert",), "require each other"),
        (("cert", "key"), "requires the authority"),
    ],
)
def test_a_certificate_needs_its_key_and_the_services_authority(
    given: tuple[str, ...], reason: str
) -> None:
    """gRPC ends the process without one of the pair; without the authority nothing is encrypted."""
    files: dict[str, Any] = {name: Path(name) for name in given}
    with pytest.raises(ConfigError, match=reason):
        Access(**files)
    Access(ca=Path("ca"), cert=Path("cert"), key=Path("key"))

"""The events of the transcripts: all members of a story differ in times, clients and metadata."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from faust_assigner.coordinator.events import (
    CatalogueChanged,
    CommitOffsets,
    ConsumerGroupHeartbeat,
    DeleteGroup,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Leaver,
    Protocol,
    SyncGroup,
    TargetComputed,
    TimersDue,
)
from faust_assigner.coordinator.protocol import write_assignment
from tests.property.consumer_sim.clients import subscription
from tests.support.coordination.consumer_bench import catalogue, topic_id
from tests.support.coordination.transcript import COMPUTED, NOT_SAVED, NOW, SAVED, VIEWS, Step

#: Version 3 of ConsumerProtocol, with a rack at its end.
IN_RACK: Final = subscription(["a", "b"], {}, 3)[:-2] + b"\x00\x02r9"
READS_A, READS_AB = subscription(["a"], {}, 0), subscription(["a", "b"], {}, 0)
RANGE_FIRST: Final = (Protocol("range", READS_A), Protocol("sticky", b"\x01"))
STICKY_FIRST: Final = (Protocol("sticky", b"\x02"), Protocol("range", READS_AB))
ONLY_RANGE: Final = (Protocol("range", READS_AB),)
BOTH_READ: Final = (Protocol("range", IN_RACK), Protocol("sticky", READS_A))
M1: Final = JoinGroup(
    0, "", "m1", RANGE_FIRST, "consumer", 7_000, 20_000, None, "c1", "/1", "the first"
)
M2: Final = JoinGroup(0, "", "m2", STICKY_FIRST, "consumer", 9_000, 30_000, None, "c2", "/2")
M3: Final = JoinGroup(
    0, "", "m3", ONLY_RANGE, "consumer", 11_000, 40_000, "i3", "c3", "/3", "the third"
)


def join(event: JoinGroup, token: int, member_id: str = "", **changes: object) -> JoinGroup:
    """Return the member's join with a new token and with its member id."""
    return replace(event, token=token, member_id=member_id, **changes)  # type: ignore[arg-type]


DYNAMIC: Final[Sequence[Step]] = (
    VIEWS,
    CommitOffsets(1),
    CommitOffsets(2, "m1", 0),
    join(M1, 3),
    join(M2, 4, needs_known_id=True),
    join(M3, 5, instance_id=None),
    500, join(M1, 6, "m1"),
    600, join(M2, 7, "m2"),
    Heartbeat(8, "m1", 0),
    2_400, TimersDue(),
    100, join(M3, 9),
    2_900, TimersDue(),
    3_000, TimersDue(),
    VIEWS,
    250, Heartbeat(10, "m2", 1),
    CommitOffsets(11, "m2", 1),
    CommitOffsets(12, "m2", 1, transactional=True),
    CommitOffsets(13, transactional=True),
    CommitOffsets(42, instance_id="i9", transactional=True),
    CommitOffsets(43, "m9", transactional=True),
    CommitOffsets(44, "", 0, transactional=True),
    SyncGroup(14, "m2", 1, None, "", "range"),
    SyncGroup(15, "m2", 1, None, None, ""),
    SyncGroup(16, "m2", 1, None, "consumer", "range"),
    50, SyncGroup(17, "m1", 1, assignments={"m1": b"A1", "m2": b"A2", "m9": b"A9"}),
    70, SAVED,
    VIEWS,
    SyncGroup(18, "m3", 1, "i3"),
    1_000, Heartbeat(19, "m1", 1),
    CommitOffsets(20, "m2", 1),
    CommitOffsets(21, "m3", 1, "i3"),
    FetchOffsets(22),
    join(M2, 23, "m2", session_timeout_ms=10_000),
    join(M2, 24, "m2", session_timeout_ms=8_500, rebalance_timeout_ms=25_000, client_id="c2b",
         client_host="/2b", protocols=RANGE_FIRST),
    VIEWS,
    300, Heartbeat(25, "m3", 1, "i3"),
    CommitOffsets(26, "m1", 1),
    join(M1, 27, "m1"),
    400, join(M3, 28, "m3"),
    SyncGroup(29, "m2", 2),
    SyncGroup(30, "m1", 2, assignments={"m1": b"B1", "m2": b"B2", "m3": b"B3"}),
    NOT_SAVED,
    SAVED,
    VIEWS,
    join(M2, 31, "m2"),
    join(M1, 32, "m1"),
    LeaveGroup(33, (Leaver("m1", None, "done"), Leaver("m9"), Leaver("m2", "i3"), Leaver("m3", "i9"))),
    join(M3, 34, "m3"),
    15_000, TimersDue(),
    26_000, TimersDue(),
    VIEWS,
    join(M1, 35, "", new_member_id="m4"),
    join(M2, 36, "m4"),
    SyncGroup(37, "m4", 3),
    100, LeaveGroup(38, (Leaver("m4"),)),
    2_900, TimersDue(),
    DeleteGroup(39),
    DeleteGroup(40),
    join(M1, 41),
    VIEWS,
)  # fmt: skip

STATIC: Final[Sequence[Step]] = (
    join(M3, 1),
    join(M1, 2, instance_id="", needs_known_id=False),
    3_000, TimersDue(),
    3_000, TimersDue(),
    SyncGroup(3, "m3", 1, "i3", assignments={"m1": b"A1", "m3": b"A3"}),
    SAVED,
    # The follower returns before its sync, and its replacement is stored.
    join(M1, 4, new_member_id="m4", instance_id="", session_timeout_ms=6_500, client_id="c4",
         client_host="/4"),
    500, SAVED,
    Heartbeat(5, "m1", 1, ""),
    SyncGroup(6, "m4", 1, ""),
    # The leader returns: with an older client, then with a client that can skip the assignment.
    700, join(M3, 7, new_member_id="m5", rebalance_timeout_ms=45_000, reason="again"),
    SAVED,
    VIEWS,
    join(M3, 8, new_member_id="m6", can_skip_assignment=True),
    SAVED,
    join(M1, 9, new_member_id="m7", instance_id="", can_skip_assignment=True),
    SAVED,
    # A replacement that is not stored.
    join(M3, 10, new_member_id="m8", can_skip_assignment=True, client_id="c8", session_timeout_ms=9_500),
    NOT_SAVED,
    VIEWS,
    # A rebalance begins before the replacement is stored.
    join(M3, 11, new_member_id="m9"),
    join(M1, 12, "m7", instance_id="", protocols=ONLY_RANGE),
    SAVED,
    join(M3, 13, "m9"),
    # The leader returns while it is to assign, with parked syncs.
    SyncGroup(14, "m7", 2, ""),
    join(M1, 15, new_member_id="m10", instance_id=""),
    join(M3, 16, "m9"),
    100, SyncGroup(17, "m9", 3, "i3"),
    SAVED,
    3_000, TimersDue(),
    17_000, TimersDue(),
    30_000, TimersDue(),
    30_000, TimersDue(),
    VIEWS,
)  # fmt: skip

A, B = topic_id("a"), topic_id("b")
H1: Final = ConsumerGroupHeartbeat(
    0, "m1", 0, None, "r1", 20_000, ("a", "b"), None, "range", {}, "c1", "/1", principal="User:1"
)
H2: Final = ConsumerGroupHeartbeat(
    0, "", 0, None, None, 30_000, None, "a|z", None, {}, "c2", "/2", "m2", 0, "User:2"
)
H3: Final = ConsumerGroupHeartbeat(
    0, "m3", 0, "i3", "r3", 40_000, ("b",), None, None, {}, "c3", "/3"
)
C1: Final = JoinGroup(
    0, "", "c1", BOTH_READ, "consumer", 9_000, 25_000, None, "d1", "/9", needs_known_id=False
)


def beat(
    event: ConsumerGroupHeartbeat, token: int, epoch: int, owned: object = None, **changes: object
) -> ConsumerGroupHeartbeat:
    """Return a member's later heartbeat without the unchanged fields."""
    fields = {
        "rack_id": None, "rebalance_timeout_ms": -1, "subscribed_topic_names": None,
        "subscribed_topic_regex": None, "server_assignor": None, "new_member_id": "",
        "member_id": event.member_id or event.new_member_id,
    }  # fmt: skip
    return replace(
        event,
        token=token,
        member_epoch=epoch,
        owned=owned,
        **(fields | changes),  # type: ignore[arg-type]
    )


CONSUMER: Final[Sequence[Step]] = (
    VIEWS,
    replace(H1, token=1),
    VIEWS,
    100, replace(H2, token=2),
    300, replace(H3, token=3),
    VIEWS,
    100, TimersDue(),
    VIEWS,
    replace(H1, token=46, member_id="m9"),
    # m1 must revoke: it sends no list, then all its partitions, then the remaining partitions.
    700, beat(H1, 4, 2),
    900, beat(H1, 5, 2, {A: (0, 1, 2, 3), B: (0, 1)}),
    VIEWS,
    CommitOffsets(6, "m1", 2, partitions=(("a", 3), ("b", 0))),
    CommitOffsets(7, "m1", 1, partitions=(("a", 3),)),
    CommitOffsets(8, "m1", 2, api_version=8),
    CommitOffsets(9, "m1", 2, api_version=8, transactional=True),
    CommitOffsets(10, transactional=True),
    CommitOffsets(11, "m9", 2),
    FetchOffsets(12), FetchOffsets(13, "m1", 2), FetchOffsets(14, "m1", 3), FetchOffsets(15, "m9", 2),
    DeleteGroup(16),
    beat(H1, 17, 2, {A: (0, 1), B: (0,)}),
    beat(H1, 45, 2, {A: (0, 1), B: (1,)}),
    beat(H2, 18, 2),
    beat(H3, 19, 2),
    VIEWS,
    # An older epoch: with a subset of its partitions, with different ones, and too old; a newer
    # epoch.
    beat(H1, 20, 2, {A: (0,)}), beat(H1, 21, 2, {A: (3,)}), beat(H1, 48, 2, {A: (0, 3)}),
    beat(H1, 22, 1, {A: (0,)}), beat(H1, 23, 9),
    CommitOffsets(24, "m1", 2, partitions=(("a", 0),)),
    CommitOffsets(25, "m2", 2, partitions=(("a", 2),)),
    replace(H1, token=47, rack_id="r1b", server_assignor="range"),
    # A new subscription, a full repetition of an answer, and a change whose record is not stored.
    500, beat(H2, 26, 4, subscribed_topic_regex="b"), NOT_SAVED,
    VIEWS,
    1_000, TimersDue(),
    beat(H2, 27, 4, subscribed_topic_names=("b",), subscribed_topic_regex="", client_host="/2b",
         server_assignor="uniform"),
    beat(H3, 28, 4, {B: (1,)}, subscribed_topic_names=("b",), rebalance_timeout_ms=41_000),
    600, TimersDue(),
    VIEWS,
    # A static member leaves temporarily, a second holder is refused, and the member returns.
    50, beat(H3, 29, -2),
    VIEWS,
    400, replace(H3, token=30, member_id="m4"),
    beat(H3, 31, 4), beat(H3, 32, 0, {}, member_id="m5", rebalance_timeout_ms=1, subscribed_topic_names=()),
    VIEWS,
    CatalogueChanged(catalogue(a=4, b=3)),
    500, TimersDue(),
    # m2 never revokes, m4 leaves, m1 is silent.
    beat(H2, 33, 4),
    3_000, beat(H3, 34, -1, member_id="m4"),
    3_000, TimersDue(),
    VIEWS,
    3_000, TimersDue(),
    20_000, TimersDue(),
    VIEWS,
    DeleteGroup(35),
    replace(H1, token=36), DeleteGroup(37),
    VIEWS,
)  # fmt: skip

ELSEWHERE: Final[Sequence[Step]] = (
    replace(H1, token=1, subscribed_topic_names=("a",), server_assignor=None),
    200, replace(H3, token=2, subscribed_topic_names=("a", "b")),
    beat(H3, 3, -2),
    replace(H3, token=4, member_id="m4", subscribed_topic_names=("a", "b")),
    VIEWS,
    300, COMPUTED,
    VIEWS,
    beat(H3, 5, 1, member_id="m4"),
    500, TimersDue(), COMPUTED,
    VIEWS,
    100, replace(H2, token=6, subscribed_topic_regex="b|z"),
    500, TimersDue(),
    TargetComputed(3, None, "no memory"),
    1_000, TimersDue(),
    TargetComputed(4, {"m1": {A: (0,)}, "m2": {A: (0,)}}),
    VIEWS,
    59_000, beat(H1, 7, 2),
)  # fmt: skip

MIXED: Final[Sequence[Step]] = (
    replace(H1, token=1, server_assignor=None),
    500, join(C1, 2, needs_known_id=True),
    join(C1, 3),
    join(M3, 4, new_member_id="c3"),
    500, TimersDue(),
    VIEWS,
    # Refused joins: a fourth member, an excessive timeout, a wrong type, and no common protocol.
    join(C1, 40, new_member_id="c5"),
    join(C1, 41, new_member_id="c5", needs_known_id=True),
    join(C1, 42, new_member_id="c5", instance_id="i5"),
    join(C1, 43, "c1", session_timeout_ms=5_999), join(C1, 44, "c1", session_timeout_ms=60_001),
    join(C1, 45, "c1", protocol_type="connect"), join(C1, 46, "c1", protocols=(Protocol("rr", READS_A),)),
    join(C1, 47, "c1", protocols=()), join(C1, 48, "c1", protocols=(Protocol("range", b""),)),
    join(M3, 49, "c1"), join(M3, 50, "c1", instance_id="i9"),
    replace(H2, token=51, member_id="m2"),
    SyncGroup(5, "c1", 3, None, "consumer", "range"),
    200, Heartbeat(6, "c1", 3),
    Heartbeat(7, "c1", 2), Heartbeat(8, "m1", 2), Heartbeat(9, "c3", 4, "i9"),
    beat(H1, 10, 2, {A: (0, 1, 2, 3), B: (0, 1)}),
    beat(H1, 11, 2, {A: (0, 1), B: ()}),
    300, join(C1, 12, "c1", session_timeout_ms=6_000, needs_known_id=True),
    join(C1, 52, "c1", session_timeout_ms=60_000),
    SyncGroup(13, "c1", 4, None, "connect"), SyncGroup(14, "c1", 4, None, None, "sticky"),
    100,
    SyncGroup(15, "c1", 4, None, "consumer", "range"),
    50,
    Heartbeat(53, "c1", 4),
    Heartbeat(16, "c3", 3, "i3"),
    join(M3, 17, "c3", session_timeout_ms=12_000),
    SyncGroup(18, "c3", 4, "i3"),
    VIEWS,
    CommitOffsets(19, "c1", 3), CommitOffsets(20, "c1", 4, api_version=2), FetchOffsets(21, "c1", 3),
    # The static member returns with a new member id, and leaves by its instance id.
    1_000, join(M3, 22, new_member_id="c4"),
    Heartbeat(23, "c3", 4, "i3"),
    LeaveGroup(24, (Leaver("c9"), Leaver("", "i3", "gone"), Leaver("c1", "i3"))), NOT_SAVED,
    LeaveGroup(25, (Leaver("c9"), Leaver("", "i3", "gone"), Leaver("", "i9"))),
    1_000, TimersDue(),
    # The last member of the new protocol leaves: the group continues as a classic group.
    2_000, beat(H1, 26, -1),
    VIEWS,
    Heartbeat(27, "c1", 6),
    join(C1, 28, "c1", protocols=(Protocol("range", READS_A), Protocol("sticky", b"s"))),
    SyncGroup(29, "c1", 6, assignments={"c1": write_assignment(0, {"a": (0, 1, 2, 3)})}), SAVED,
    VIEWS,
    # The next member of the new protocol converts the group back.
    700, replace(H2, token=30, member_id="m2"), NOT_SAVED,
    replace(H2, token=31, member_id="m2"),
    VIEWS,
    30_000, TimersDue(),
    VIEWS,
)  # fmt: skip


def owning(token: int, member_id: str, **owned: tuple[int, ...]) -> JoinGroup:
    """Return z1's join, which reports its partitions in a version without a rack."""
    offers = Protocol("range", subscription(["a", "b"], owned, 1)), Protocol("sticky", READS_A)
    return join(C1, token, member_id, protocols=offers, new_member_id="z1")


H4: Final = replace(H2, subscribed_topic_regex="[ab]", rebalance_timeout_ms=60_000)
REVOKING: Final[Sequence[Step]] = (
    replace(H1, token=1, server_assignor=None), 500, replace(H4, token=2),
    beat(H1, 3, NOW, {A: (0, 1, 2, 3), B: (0, 1)}), beat(H1, 4, NOW, {A: (0, 1, 2)}), beat(H2, 5, NOW),
    # z1 waits for a partition of each member and must join again after the last revocation.
    500, owning(6, ""), SyncGroup(7, "z1", NOW), Heartbeat(8, "z1", NOW),
    VIEWS,
    beat(H1, 9, NOW), beat(H1, 10, NOW, {A: (0, 1)}), Heartbeat(11, "z1", NOW),
    beat(H2, 12, NOW), beat(H2, 13, NOW, {B: (0, 1)}), Heartbeat(14, "z1", NOW), SyncGroup(15, "z1", NOW),
    400, owning(16, "z1"), SyncGroup(17, "z1", NOW),
    VIEWS,
    # Topics grow and shrink: z1 must revoke a partition and at first reports it as owned.
    CatalogueChanged(catalogue(a=2, b=2)), 500, TimersDue(),
    100, Heartbeat(18, "z1", NOW), SyncGroup(19, "z1", NOW),
    owning(20, "z1", a=(2, 3)), SyncGroup(21, "z1", NOW), 200, Heartbeat(22, "z1", NOW),
    VIEWS,
    owning(23, "z1", a=(3,)), Heartbeat(24, "z1", NOW), owning(25, "z1"), SyncGroup(26, "z1", NOW),
    # The members keep their sessions, and z1 syncs too late, then joins again too late.
    owning(27, "z1"),
    7_000, Heartbeat(28, "z1", NOW), beat(H1, 29, NOW, {}), beat(H2, 30, NOW, {}),
    7_000, Heartbeat(31, "z1", NOW), beat(H1, 32, NOW), beat(H2, 33, NOW),
    7_000, Heartbeat(34, "z1", NOW), beat(H1, 35, NOW), beat(H2, 36, NOW),
    3_999, TimersDue(),
    1, TimersDue(),
    VIEWS,
    owning(37, ""), SyncGroup(38, "z1", NOW),
    500, TimersDue(), Heartbeat(39, "z1", NOW),
    7_000, Heartbeat(40, "z1", NOW), beat(H1, 41, NOW, {}), beat(H2, 42, NOW, {}),
    7_000, Heartbeat(43, "z1", NOW), beat(H1, 44, NOW), beat(H2, 45, NOW),
    7_000, Heartbeat(46, "z1", NOW), beat(H1, 47, NOW), beat(H2, 48, NOW),
    4_000, TimersDue(),
    VIEWS,
)  # fmt: skip

#: All sessions are longer than the join phases, which end before the initial delay.
L1: Final = replace(M1, rebalance_timeout_ms=2_000, session_timeout_ms=60_000, needs_known_id=False)
L2: Final = replace(M2, rebalance_timeout_ms=1_500, session_timeout_ms=58_000, needs_known_id=False)
L4: Final = replace(
    L1, new_member_id="m4", instance_id="", rebalance_timeout_ms=500, session_timeout_ms=50_000
)
LATE: Final[Sequence[Step]] = (
    join(L1, 1), 100, join(L2, 2), join(L2, 3, new_member_id="m3"), join(L4, 4),
    3_000, TimersDue(),
    SyncGroup(5, "m1", 1, assignments={"m1": b"A1", "m4": b"A4"}), SAVED,
    # m3 alone joins again: two dynamic members are removed, and the static one stays.
    200, join(L2, 6, "m3", protocols=RANGE_FIRST),
    1_999, TimersDue(),
    1, TimersDue(),
    VIEWS,
    # Only the static member is left, and its join phase ends once a second until its session does.
    700, LeaveGroup(7, (Leaver("m3"),)),
    999, TimersDue(),
    1, TimersDue(),
    1_000, TimersDue(),
    VIEWS,
    join(L4, 8, "m4"),
    # A pending member holds up the next join phase until its id expires.
    SyncGroup(9, "m4", 3, ""), SAVED,
    join(L1, 10, needs_known_id=True, session_timeout_ms=6_000, new_member_id="m5"),
    100, join(L4, 11, "m4", rebalance_timeout_ms=45_000),
    5_899, TimersDue(),
    1, TimersDue(),
    SyncGroup(12, "m4", 4, ""), SAVED,
    # A follower that never syncs is removed at the longest rebalance timeout.
    join(L1, 13, rebalance_timeout_ms=46_000), join(L4, 14, "m4", rebalance_timeout_ms=45_000),
    SyncGroup(15, "m4", 5, ""), SAVED,
    join(L2, 18, new_member_id="m8"), join(L1, 19, "m1", rebalance_timeout_ms=46_000),
    join(L4, 20, "m4", rebalance_timeout_ms=45_000),
    SyncGroup(21, "m4", 6, ""), SAVED,
    40_000, Heartbeat(16, "m1", 6), Heartbeat(17, "m4", 6, ""), Heartbeat(22, "m8", 6),
    5_999, TimersDue(),
    1, TimersDue(),
    VIEWS,
)  # fmt: skip

#: A dynamic member replaces a static member under its own id; other requests are refused.
TAKEOVER: Final[Sequence[Step]] = (
    replace(H1, token=1, server_assignor=None), 500, replace(H3, token=2),
    beat(H1, 3, NOW, {A: (0, 1, 2, 3), B: (0,)}), beat(H3, 4, NOW), beat(H3, 5, -2),
    VIEWS,
    replace(H2, token=31), 500, TimersDue(), beat(H2, 33, NOW),
    300, replace(H3, token=6, member_id="m1", rack_id=None),
    VIEWS,
    500, TimersDue(), beat(H2, 32, NOW),
    VIEWS,
    beat(H3, 7, NOW, member_id="m1"), beat(H1, 8, NOW),
    500, TimersDue(),
    VIEWS,
    replace(H1, token=10, member_epoch=-3), replace(H1, token=11, member_id=""),
    replace(H1, token=12, instance_id=""), replace(H1, token=13, rack_id=""),
    replace(H1, token=14, rebalance_timeout_ms=-1), replace(H1, token=15, owned={A: (1,)}),
    replace(H1, token=16, owned=None), replace(H1, token=17, subscribed_topic_names=None),
    replace(H1, token=18, server_assignor="other"), replace(H1, token=19, member_epoch=-2),
    replace(H1, token=20, member_id="m9", subscribed_topic_names=None, subscribed_topic_regex="("),
    replace(H2, token=21, member_epoch=-2), replace(H2, token=22, member_epoch=5),
    replace(H1, token=23, member_id="m9", member_epoch=-1), beat(H3, 24, -1, member_id="m9"),
    beat(H3, 25, -2, member_id="m1", instance_id="i9"), beat(H3, 26, 4, instance_id="i9"),
    replace(H1, token=27, member_epoch=4), replace(H1, token=28, member_id="m9", member_epoch=4),
    1, beat(H1, 29, NOW, instance_id="i3", subscribed_topic_regex="z|b", principal="User:9"),
    beat(H1, 30, NOW, instance_id="i3", client_host="/9", principal="User:9"),
    VIEWS,
)  # fmt: skip

#: An empty consumer group takes the protocol of its next member, even after refusals.
EMPTIED: Final[Sequence[Step]] = (
    replace(H1, token=1, server_assignor=None), 400, beat(H1, 2, -1),
    VIEWS,
    300, join(C1, 3, "c1"), join(C1, 4, session_timeout_ms=5_999), join(C1, 5, protocols=()),
    join(C1, 6, "c1", session_timeout_ms=60_001),
    CommitOffsets(7), CommitOffsets(8, "m1", 2), CommitOffsets(9, "", 0), FetchOffsets(10, "m1", 2),
    Heartbeat(11, "c1", 3), SyncGroup(12, "c1", 3), LeaveGroup(13, (Leaver("c1"),)),
    200, join(C1, 14), NOT_SAVED,
    VIEWS,
    join(C1, 15),
    VIEWS,
    3_000, TimersDue(), SyncGroup(16, "c1", 4, assignments={"c1": b"x"}), SAVED,
    LeaveGroup(17, (Leaver("c1"),)),
    # The opposite conversion, under a new id.
    100, replace(H2, token=18), NOT_SAVED,
    replace(H2, token=19),
    VIEWS,
)  # fmt: skip

#: A join waits for the initial delay when the first member of the new protocol converts the group.
CONVERTED: Final[Sequence[Step]] = (
    join(C1, 1), 100, join(M3, 2), 200, replace(H2, token=3), NOT_SAVED,
    replace(H2, token=4),
    VIEWS,
)  # fmt: skip

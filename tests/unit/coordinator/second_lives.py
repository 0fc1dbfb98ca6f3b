"""Further events of the transcripts: restarts from the saved records, and state that must be dropped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from faust_assigner.coordinator.events import (
    CatalogueChanged,
    CommitOffsets,
    FetchOffsets,
    Heartbeat,
    LeaveGroup,
    Leaver,
    Protocol,
    SyncGroup,
    TargetComputed,
    TimersDue,
)
from tests.support.coordination.consumer_bench import catalogue
from tests.support.coordination.transcript import (
    COMPUTED,
    NOT_SAVED,
    NOW,
    RESTART,
    SAVED,
    VIEWS,
    Step,
)
from tests.unit.coordinator.stories import (
    C1,
    H1,
    H2,
    H3,
    IN_RACK,
    L1,
    L2,
    M1,
    M2,
    M3,
    ONLY_RANGE,
    A,
    B,
    beat,
    join,
)

JOBS: Final = (Protocol("jobs", b"j1"), Protocol("range", b"j2"))
LEFTOVERS: Final[Sequence[Step]] = (
    RESTART,
    # An issued id serves no static member, leaves without a trace, and expires alone.
    join(M1, 1), join(M1, 2, "m1", instance_id="i1"), SyncGroup(3, "m1", 0), Heartbeat(4, "m1", 0),
    LeaveGroup(5, (Leaver("m1", "i1"), Leaver("m1"), Leaver("m1"))),
    VIEWS,
    join(M1, 6), 500, join(M2, 7), join(M3, 8, instance_id=None),
    6_500, TimersDue(),
    join(M1, 9, new_member_id="m4", session_timeout_ms=6_000),
    LeaveGroup(10, (Leaver("m2"),)), 6_000, TimersDue(), 3_000, TimersDue(),
    # All members leave within the delay, and the next member has a different type.
    join(L1, 11, "", new_member_id="m5"), 100, LeaveGroup(12, (Leaver("m5", None, "no"),)),
    join(L1, 13, new_member_id="m6", protocol_type="connect", protocols=JOBS),
    join(L2, 14, new_member_id="m7"),
    VIEWS,
    2_900, TimersDue(),
    RESTART, VIEWS,
    Heartbeat(15, "m6", NOW), join(L1, 16, "m6", protocol_type="connect", protocols=JOBS),
    100, SyncGroup(17, "m6", NOW, None, "connect", "jobs", {"m6": b"J"}), SAVED,
    SAVED,
    VIEWS, RESTART, VIEWS,
    300, SyncGroup(18, "m6", NOW), CommitOffsets(19, "m6", NOW), FetchOffsets(20),
    # The group is empty again, and its next member has another type.
    LeaveGroup(21, (Leaver("m6"),)),
    RESTART, VIEWS,
    700, join(L1, 22, new_member_id="m8"), join(L2, 23, new_member_id="m9"),
    VIEWS,
    3_000, TimersDue(), VIEWS,
    # The leader does not assign in time: the member with its sync is asked to rejoin.
    SyncGroup(24, "m9", NOW),
    1_999, TimersDue(), 1, TimersDue(),
    VIEWS,
)  # fmt: skip

BOUNCED: Final[Sequence[Step]] = (
    join(L1, 1, instance_id="i1"), 50, join(L2, 2, instance_id="i2"), 60, join(M3, 3),
    2_890, TimersDue(),
    SyncGroup(4, "m3", 1, "i3"), SyncGroup(5, "m2", 1, "i2"),
    SyncGroup(6, "m1", 1, "i1", assignments={"m1": b"A1", "m2": b"A2", "m3": b"A3"}), SAVED,
    # The member returns before its sync, and its new id does not sync.
    join(L2, 7, "m2", instance_id="i2", protocols=ONLY_RANGE),
    10, join(L1, 8, "m1", instance_id="i1"), 20, join(M3, 9, "m3"),
    SyncGroup(10, "m1", 2, "i1", assignments={"m1": b"B1", "m2": b"B2", "m3": b"B3"}), SAVED,
    30, SyncGroup(11, "m3", 2, "i3"),
    300, join(L2, 12, instance_id="i2", new_member_id="m4", protocols=ONLY_RANGE), SAVED,
    RESTART, VIEWS,
    join(L2, 13, instance_id="i2", new_member_id="m5", protocols=ONLY_RANGE), NOT_SAVED,
    VIEWS,
    9_000, Heartbeat(14, "m3", 2, "i3"), 8_000, Heartbeat(15, "m3", 2, "i3"),
    # The group expires one member after the other: each has its own session.
    11_000, TimersDue(),
    VIEWS,
    29_000, TimersDue(), 40_000, TimersDue(), RESTART, VIEWS,
    # The first member misses the join phase: a later member leads, also after a restart.
    join(L1, 16, "m1", instance_id="i1"), join(L1, 17, instance_id="i1", new_member_id="m6"),
    join(M3, 18, new_member_id="m7", rebalance_timeout_ms=1_000), 3_000, TimersDue(),
    SyncGroup(19, "", NOW, "i1"), SyncGroup(20, "m7", NOW, "i3"), Heartbeat(21, "", NOW, "i1"),
    SyncGroup(22, "m6", NOW, "i1", assignments={"m7": b"C7"}), SAVED,
    join(M3, 23, "m7", protocols=(Protocol("range", b"new"),), rebalance_timeout_ms=1_000),
    2_000, TimersDue(),
    VIEWS,
    # The absent member is asked for no sync.
    SyncGroup(24, "m7", NOW, "i3", assignments={"m6": b"D6", "m7": b"D7"}), SAVED,
    VIEWS, RESTART, VIEWS,
    join(M3, 25, "m7", rebalance_timeout_ms=1_000), Heartbeat(26, "m6", NOW, "i1"),
    SyncGroup(27, "m6", NOW, "i1"), CommitOffsets(28, "m7", NOW, "i3"),
    1_999, TimersDue(), 1, TimersDue(),
    # A member leaves between the leader's sync and its own: its sync is no longer expected.
    SyncGroup(29, "m7", NOW, "i3"), SAVED,
    join(L1, 30, "m6", instance_id="i1"), join(M3, 31, "m7", rebalance_timeout_ms=1_000),
    SyncGroup(32, "m7", NOW, "i3"), SAVED,
    LeaveGroup(33, (Leaver("", "i1", "gone"),)),
    3_000, TimersDue(),
    VIEWS,
    # A follower bounces before its sync, and its new id does not sync in time.
    join(L1, 34, instance_id="i1", new_member_id="m8"),
    100, join(M3, 35, new_member_id="m9", rebalance_timeout_ms=1_000), 2_900, TimersDue(),
    SyncGroup(36, "m8", NOW, "i1", assignments={"m8": b"E8", "m9": b"E9"}), SAVED,
    200, join(M3, 37, new_member_id="m10", rebalance_timeout_ms=1_000), SAVED,
    1_799, TimersDue(), 1, TimersDue(),
    VIEWS,
    # A replacement is not saved, and the member is silent.
    join(L1, 38, "m8", instance_id="i1"), SyncGroup(39, "m8", NOW, "i1"), SAVED,
    300, join(L1, 40, instance_id="i1", new_member_id="m11", session_timeout_ms=50_000), NOT_SAVED,
    49_999, TimersDue(), 1, TimersDue(),
    VIEWS,
    # A member alone joins again while it is to assign, with other protocols and times.
    join(L2, 41, new_member_id="m12"), 3_000, TimersDue(), 50,
    CommitOffsets(42, "m12", NOW), 100, CommitOffsets(43, "m12", NOW, transactional=True),
    join(L2, 44, "m12", protocols=ONLY_RANGE, rebalance_timeout_ms=2_500),
    SyncGroup(45, "m12", NOW, assignments={"m12": b"F"}), SAVED,
    join(L2, 46, "m12", protocols=ONLY_RANGE, rebalance_timeout_ms=3_500),
    VIEWS,
)  # fmt: skip

RESTARTED: Final[Sequence[Step]] = (
    RESTART,
    replace(H1, token=1, server_assignor="range"), 100, replace(H3, token=2, server_assignor="uniform"),
    # The target is behind the group epoch.
    RESTART, VIEWS,
    TimersDue(),
    VIEWS,
    beat(H1, 3, NOW, {A: (0, 1, 2, 3), B: (0, 1)}), 200, beat(H3, 4, NOW, {}),
    VIEWS,
    RESTART, VIEWS,
    TimersDue(), 100, beat(H1, 5, NOW, {A: (0, 1, 2, 3), B: (0,)}), beat(H3, 6, NOW, {}),
    500, join(C1, 7), 500, TimersDue(), SyncGroup(8, "c1", NOW),
    beat(H1, 9, NOW, {A: (0, 1, 2, 3), B: (0,)}), beat(H3, 10, NOW, {B: (1,)}),
    VIEWS,
    RESTART, VIEWS,
    TimersDue(), 300, beat(H3, 11, -2),
    RESTART, VIEWS,
    # Each member has a fresh session of its own length, the revoking member its time limit.
    7_999, TimersDue(), 1, TimersDue(),
    999, Heartbeat(12, "c1", NOW), 8_999, TimersDue(), 1, TimersDue(),
    VIEWS,
    RESTART, VIEWS,
    TimersDue(),
    # The revoking member's time limit begins with the restart.
    replace(H1, token=13, member_id="m4"), 500, TimersDue(),
    beat(H1, 14, NOW, {A: (0, 1, 2, 3), B: (0, 1)}, member_id="m4"),
    replace(H3, token=15, member_id="m5", instance_id="i5"), 500, TimersDue(),
    beat(H1, 16, NOW, {A: (0, 1, 2, 3), B: (0, 1)}, member_id="m4"),
    3_000, RESTART, TimersDue(),
    7_000, beat(H1, 17, NOW, None, member_id="m4"), beat(H3, 18, NOW, None, member_id="m5"),
    7_000, beat(H1, 19, NOW, None, member_id="m4"), beat(H3, 20, NOW, None, member_id="m5"),
    5_999, TimersDue(), 1, TimersDue(),
    VIEWS,
)  # fmt: skip

#: Topics change, expressions come and go, and saves fail in between.
MOVED: Final[Sequence[Step]] = (
    replace(H2, token=1, subscribed_topic_names=("b",), subscribed_topic_regex="a|x"),
    300, replace(H1, token=2, subscribed_topic_names=("x",), server_assignor=None), NOT_SAVED,
    1_000, TimersDue(),
    replace(H1, token=3, subscribed_topic_names=("x", "a"), server_assignor=None),
    CatalogueChanged(catalogue(a=3, b=2, x=5)),
    VIEWS,
    500, TimersDue(),
    beat(H2, 4, NOW, {A: (0, 1), B: (0, 1)}), beat(H1, 5, NOW, {}),
    VIEWS,
    beat(H2, 6, NOW, {A: (0, 1), B: (0, 1)}, subscribed_topic_regex="x"),
    CatalogueChanged(catalogue(b=4, x=5)), NOT_SAVED,
    VIEWS,
    1_000, TimersDue(),
    beat(H2, 7, NOW, {B: (0, 1)}), beat(H1, 8, NOW, {}),
    500, TimersDue(),
    VIEWS,
    beat(H2, 9, NOW, subscribed_topic_regex="", subscribed_topic_names=("x", "b", "z")),
    400, TimersDue(), NOT_SAVED,
    900, TimersDue(),
    100, TimersDue(),
    VIEWS,
    RESTART, VIEWS,
    # The topics of the former life are not those of the second one.
    CatalogueChanged(catalogue(b=4, x=5, z=1)), 500, TimersDue(),
    beat(H1, 10, NOW, None), beat(H2, 11, NOW, None),
    VIEWS,
    # A member leaves, and the save of the expiry of the other fails.
    beat(H1, 12, -1), NOT_SAVED,
    beat(H1, 13, -1),
    8_000, TimersDue(), NOT_SAVED,
    999, TimersDue(), 1, TimersDue(),
    VIEWS,
    7_000, TimersDue(),
    VIEWS,
    RESTART, VIEWS,
    TimersDue(),
    200, replace(H2, token=14, member_id="m9"),
    VIEWS,
)  # fmt: skip

#: A static member returns under its own id, and saves fail around the members' timers.
RETURNED: Final[Sequence[Step]] = (
    replace(H1, token=1, server_assignor=None), 100, replace(H3, token=2, rebalance_timeout_ms=9_000),
    500, TimersDue(),
    beat(H1, 3, NOW, {A: (0, 1, 2, 3), B: (0, 1)}), beat(H1, 4, NOW, {A: (0, 1, 2, 3), B: (0,)}),
    beat(H3, 5, NOW, {}), beat(H3, 6, -2), 200, replace(H3, token=7),
    VIEWS,
    beat(H3, 8, NOW, None), 300, beat(H3, 9, -2), 200, replace(H3, token=10, rack_id="r4"),
    # The classic holder of an instance id is replaced by a member of the new protocol.
    join(C1, 11, instance_id="i9", session_timeout_ms=30_000), 500, TimersDue(),
    SyncGroup(12, "c1", NOW, "i9"), replace(H2, token=13, instance_id="i9", member_id="m9"),
    VIEWS,
    # A connection without a principal, and an older epoch without a list of partitions.
    500, beat(H2, 14, NOW, None, member_id="m9", instance_id="i9", principal=""), beat(H1, 15, 2),
    VIEWS,
    # m1 is silent; the save of its expiry fails, and so does a later save of another member.
    6_000, beat(H3, 16, NOW), beat(H2, 17, NOW, None, member_id="m9", instance_id="i9"),
    2_000, TimersDue(), NOT_SAVED,
    2_000, beat(H3, 18, NOW, None, rebalance_timeout_ms=12_000), NOT_SAVED,
    VIEWS,
    3_000, beat(H3, 19, NOW), beat(H2, 20, NOW, None, member_id="m9", instance_id="i9"),
    2_999, TimersDue(), 1, TimersDue(),
    VIEWS,
    # Both remaining members leave in one request, one of them by its instance id.
    LeaveGroup(21, (Leaver("m9"), Leaver("", "i3"), Leaver("m9"), Leaver("m7", "i3"))), NOT_SAVED,
    CommitOffsets(22, "m9", NOW, partitions=(("b", 1),)),
    LeaveGroup(23, (Leaver("m9"), Leaver("", "i3"), Leaver("m9"), Leaver("m7", "i3"))),
    CommitOffsets(24, "m9", 5), CommitOffsets(25, "m9"),
    VIEWS,
)  # fmt: skip

#: The broker computes the targets: late, unknown and lost results.
LATE_TARGETS: Final[Sequence[Step]] = (
    replace(H1, token=1, server_assignor=None),
    TargetComputed(2, {"m1": {A: (0,)}}), TargetComputed(0, {"m1": {A: (1,)}}),
    VIEWS,
    TargetComputed(1, {"m1": {A: (0, 1, 2, 3), B: (0, 1)}}), beat(H1, 2, NOW),
    # A static member is replaced while the target is computed; the group changes once more.
    100, replace(H3, token=3), 400, TimersDue(), beat(H3, 4, -2), replace(H3, token=5, member_id="m4"),
    200, replace(H2, token=6),
    TargetComputed(1, {"m1": {}, "m3": {A: (0,)}}), COMPUTED,
    VIEWS,
    500, TimersDue(), RESTART, VIEWS,
    # The request is lost with the first life, and its result comes late.
    COMPUTED, TimersDue(), COMPUTED,
    VIEWS,
    beat(H1, 7, NOW, {A: (0, 1), B: (0,)}), beat(H2, 8, NOW, {}), beat(H3, 9, NOW, {}, member_id="m4"),
    # A result that is not saved is requested again.
    6_000, beat(H1, 10, -1), COMPUTED, NOT_SAVED,
    1_000, TimersDue(), COMPUTED,
    VIEWS,
    # A request without a result is sent again after a minute; the last member leaves meanwhile.
    300, replace(H1, token=11, member_id="m5", rebalance_timeout_ms=70_000),
    7_000, beat(H2, 12, NOW), beat(H3, 13, NOW, member_id="m4"), beat(H1, 14, NOW, member_id="m5"),
    7_000, TimersDue(), 1_000, TimersDue(), COMPUTED,
    VIEWS,
)  # fmt: skip

#: Members return while the group waits for joins, and requests are repeated.
REPEATED: Final[Sequence[Step]] = (
    join(L1, 1, instance_id="i1"), 10, join(L2, 2, instance_id="i2", protocols=(*ONLY_RANGE, *ONLY_RANGE)),
    # Both bounce within the initial delay; the second one repeats its request.
    20, join(L2, 3, instance_id="i2", new_member_id="m4", protocols=(*ONLY_RANGE, *ONLY_RANGE)),
    30, join(L2, 4, "m4", instance_id="i2", protocols=ONLY_RANGE), join(L2, 5, "m4", instance_id="i2"),
    40, join(L1, 6, instance_id="i1", new_member_id="m5"),
    VIEWS,
    2_900, TimersDue(),
    SyncGroup(7, "m4", NOW, "i2"), 50, SyncGroup(8, "m4", NOW, "i2"),
    60, SyncGroup(9, "m5", NOW, "i1", assignments={"m4": b"A4", "m5": b"A5"}),
    SyncGroup(10, "m5", NOW, "i1", assignments={"m4": b"B4", "m5": b"B5"}), SAVED,
    VIEWS,
    # A dynamic member joins a full round: its first join is answered beside its repetition.
    100, join(M1, 11), join(M1, 12, "m1"), 70, join(M1, 13, "m1"), join(L1, 14, "m5", instance_id="i1"),
    80, join(L2, 15, instance_id="i2", new_member_id="m6"), join(L2, 16, "m6", instance_id="i2"),
    VIEWS,
    90, SyncGroup(17, "m1", NOW), SyncGroup(18, "m6", NOW, "i2"),
    join(L2, 19, "m6", instance_id="i2"), join(L1, 20, "m5", instance_id="i1"),
    SyncGroup(21, "m5", NOW, "i1", assignments={"m1": b"C1"}), NOT_SAVED,
    VIEWS,
    # The group is full, and a member that did not join again in time loses its place.
    join(L1, 22, "m5", instance_id="i1"), join(L1, 23, new_member_id="m7"), join(L1, 24, new_member_id="m8"),
    join(L1, 25, new_member_id="m9"), join(M1, 26, "m1"), join(L2, 27, "m6", instance_id="i2"),
    VIEWS,
    1_000, TimersDue(),
    SyncGroup(28, "m5", NOW, "i1", assignments={}), SAVED,
    RESTART, VIEWS,
    LeaveGroup(29, (Leaver("m5", "i1"), Leaver("m1"), Leaver("m6", "i2"), Leaver("m7"), Leaver("m8"))),
    VIEWS,
)  # fmt: skip

#: Members give up partitions in several steps, with omitted fields, lost answers and new protocols.
WITHDRAWN: Final[Sequence[Step]] = (
    replace(H1, token=1, server_assignor=None), 500, replace(H3, token=2, subscribed_topic_names=("a", "b")),
    beat(H1, 3, NOW, {A: (0, 1, 2, 3), B: (0, 1)}),
    # Further partitions are to be revoked: the time limit begins again, once.
    300, beat(H1, 4, NOW, {A: (0, 1, 2, 3), B: (0, 1)}, subscribed_topic_names=("b",)),
    200, beat(H1, 5, NOW), 100, beat(H1, 6, NOW, {A: (0,)}), beat(H1, 7, NOW, {}),
    VIEWS,
    500, TimersDue(), beat(H1, 8, NOW, {}), beat(H3, 9, NOW, {}),
    VIEWS,
    # The last answer was lost: the epoch before it, without a list, with the list, and with a foreign one.
    beat(H3, 10, 3), beat(H3, 11, 3, {}), beat(H3, 12, 3, {A: (0,), B: (7,)}), beat(H3, 13, 2, {}),
    beat(H1, 14, 2), beat(H1, 15, 2, {}), beat(H1, 16, 1, {}),
    # A full repetition has all three parts; each other heartbeat gets no list.
    beat(H1, 17, NOW, {B: (0,)}, subscribed_topic_names=("b",)),
    beat(H1, 18, NOW, {B: (0,)}, subscribed_topic_names=("b",), rebalance_timeout_ms=21_000),
    beat(H1, 19, NOW, None, subscribed_topic_names=("b",), rebalance_timeout_ms=21_000),
    beat(H1, 20, NOW, {B: (0,)}, rebalance_timeout_ms=21_000),
    beat(H1, 21, NOW, {B: (0,)}, subscribed_topic_regex="", rebalance_timeout_ms=21_000),
    beat(H1, 22, NOW, None, client_host="", client_id="", rack_id="r8", server_assignor="range"),
    VIEWS,
    # A static member leaves for a while amid a revocation.
    CatalogueChanged(catalogue(a=2, b=2)), 500, TimersDue(),
    beat(H3, 23, NOW), beat(H3, 24, NOW, {A: (0, 1, 2, 3)}), 100, beat(H3, 25, -2),
    VIEWS, RESTART, VIEWS,
    TimersDue(), 400, beat(H3, 26, -2), replace(H3, token=27, subscribed_topic_names=("a", "b")),
    VIEWS,
    # A classic member owes a sync and a join, and comes back under its id with the new protocol.
    join(C1, 28), 100, Heartbeat(29, "c1", NOW), replace(H2, token=30, member_id="c1"),
    VIEWS,
    700, TimersDue(), beat(H1, 31, NOW), beat(H2, 32, NOW, {}, member_id="c1"), Heartbeat(33, "c1", NOW),
    SyncGroup(34, "c1", NOW), join(C1, 35, "c1", session_timeout_ms=13_000),
    VIEWS,
    200, SyncGroup(36, "c1", NOW), 500, TimersDue(), 300, Heartbeat(37, "c1", NOW),
    FetchOffsets(38, None, 3), FetchOffsets(39, "c1", 3), FetchOffsets(40, "", NOW),
    FetchOffsets(41, "m1", 1),
    # A full group: its static member is replaced, a new instance is refused.
    replace(H3, token=42, member_id="m5", instance_id="i5"), replace(H3, token=43, member_id="m6"),
    join(M3, 44, new_member_id="c4"), join(M3, 45, instance_id="i5", new_member_id="c5"),
    VIEWS,
    # A classic member that is to join again returns with the new protocol.
    Heartbeat(46, "c1", NOW), replace(H1, token=47, member_id="c1", rebalance_timeout_ms=22_000),
    VIEWS,
    # A classic member with a part of its target waits, joins again, and prefers an unknown protocol.
    Heartbeat(48, "c4", NOW, "i3"), beat(H1, 49, NOW, {}), Heartbeat(50, "c4", NOW, "i3"),
    join(M3, 51, "c4", protocols=(Protocol("rr", IN_RACK), *M3.protocols)), SyncGroup(52, "c4", NOW, "i3"),
    VIEWS,
)  # fmt: skip

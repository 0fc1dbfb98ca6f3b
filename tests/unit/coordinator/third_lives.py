"""Events of the transcripts about saves that fail, votes, late commits and changes of the protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from faust_assigner.coordinator.events import (
    CommitOffsets,
    DeleteGroup,
    Heartbeat,
    LeaveGroup,
    Leaver,
    Protocol,
    SyncGroup,
    TimersDue,
)
from tests.support.coordination.transcript import (
    COMPUTED,
    NOT_SAVED,
    NOW,
    RESTART,
    SAVED,
    VIEWS,
    Step,
)
from tests.unit.coordinator.stories import C1, H1, H2, H3, M3, READS_A, A, B, beat, join

#: Requests for targets that are not sent, or not answered.
UNSENT: Final[Sequence[Step]] = (
    replace(H1, token=1, server_assignor="uniform"), NOT_SAVED,
    VIEWS,
    1_000, TimersDue(), replace(H1, token=2, server_assignor="uniform"),
    100, replace(H3, token=3, server_assignor="range"), COMPUTED, NOT_SAVED,
    999, TimersDue(), 1, TimersDue(), beat(H1, 4, NOW), beat(H3, 5, NOW),
    VIEWS,
    # A minute without a result: the request is sent again, and the first result comes too late.
    *(step for n in range(8) for step in (7_500, beat(H1, 10 + n, NOW), beat(H3, 20 + n, NOW))),
    VIEWS,
    1_000, TimersDue(), COMPUTED,
    VIEWS,
    beat(H1, 30, NOW, {A: (), B: ()}), beat(H3, 31, NOW, {}),
    # All members leave, and the next member waits for no interval.
    beat(H1, 32, -1), beat(H3, 33, -1), VIEWS,
    100, replace(H2, token=35), COMPUTED, beat(H2, 36, NOW),
    VIEWS,
    DeleteGroup(37), beat(H2, 38, -1), DeleteGroup(39), COMPUTED, beat(H2, 40, NOW),
)  # fmt: skip

#: Votes that tie, commits of older epochs, and a static member whose return is not saved.
TIED: Final[Sequence[Step]] = (
    replace(H1, token=1, server_assignor="uniform"), beat(H1, 2, -1),
    # The group was empty: the target is computed at once.
    200, replace(H1, token=3, server_assignor="uniform"), 500, replace(H3, token=4, server_assignor="range"),
    VIEWS,
    beat(H1, 5, NOW, {A: (0, 1, 2, 3), B: (0, 1)}), beat(H1, 6, NOW, {A: (0, 1, 2, 3), B: (1,)}),
    beat(H3, 7, NOW, {}), 500, replace(H2, token=8), 500, TimersDue(),
    beat(H1, 9, NOW, {A: (0, 1, 2, 3), B: (1,)}),
    VIEWS,
    CommitOffsets(10, "m1", 9), CommitOffsets(11, "m1", 1), CommitOffsets(12, "m1", 1, partitions=()),
    CommitOffsets(13, "m1", NOW, partitions=(("a", 3), ("b", 1))),
    CommitOffsets(14, "m1", 4, partitions=(("a", 3),)), CommitOffsets(15, "m1", 3, partitions=(("a", 3),)),
    CommitOffsets(16, "m1", 3, partitions=(("z", 0),)), CommitOffsets(17, "m1", 3, partitions=(("a", 9),)),
    CommitOffsets(18, "m3", 3, "i3"), CommitOffsets(19, "m3", 3, partitions=(("b", 0),)),
    VIEWS,
    CommitOffsets(29, "m1", 4, partitions=(("z", 0),)), CommitOffsets(30, "m1", 4, partitions=(("z", 1),)),
    CommitOffsets(31, "", 0, transactional=True), CommitOffsets(32, "", -2, transactional=True),
    # The return of a static member writes its assignment twice.
    beat(H3, 20, -2), 300, replace(H3, token=21), NOT_SAVED,
    VIEWS,
    200, replace(H3, token=22, member_id="m4"), NOT_SAVED,
    VIEWS,
    100, replace(H3, token=23, member_id="m4"),
    VIEWS,
    beat(H1, 24, NOW, {A: (0, 1)}), 500, TimersDue(),
    beat(H2, 25, NOW, {}), beat(H3, 26, NOW, {}, member_id="m4"),
    CommitOffsets(27, "m1", 4, partitions=(("a", 0),)), CommitOffsets(28, "m2", 4, partitions=(("a", 3),)),
    VIEWS,
)  # fmt: skip

#: A revoking member becomes classic, a rack is kept, and the change to a classic group is not saved.
CHANGED: Final[Sequence[Step]] = (
    replace(H1, token=1, server_assignor=None), 500, replace(H3, token=2),
    beat(H1, 3, NOW, {A: (0, 1, 2, 3), B: (0, 1)}),
    VIEWS,
    200, join(C1, 4, "m1"), SyncGroup(5, "m1", NOW), Heartbeat(6, "m1", NOW),
    VIEWS,
    300, join(C1, 7, "m1", protocols=(Protocol("range", READS_A),)), 500, TimersDue(),
    join(C1, 8, "m1", protocols=(Protocol("range", READS_A),), session_timeout_ms=6_000),
    SyncGroup(9, "m1", NOW), beat(H3, 10, NOW, {}),
    VIEWS,
    # The last member of the new protocol is silent, and the change of the group is not saved.
    5_000, Heartbeat(11, "m1", NOW), 3_000, TimersDue(), NOT_SAVED,
    VIEWS,
    3_000, Heartbeat(12, "m1", NOW), 4_999, TimersDue(), 1, TimersDue(),
    VIEWS, RESTART, VIEWS,
    join(C1, 13, "m1", protocols=(Protocol("range", READS_A),)), 100, replace(H2, token=14), NOT_SAVED,
    replace(H2, token=15, member_epoch=3), replace(H2, token=16),
    VIEWS,
    # A static member of the new protocol is replaced by a classic one: all members are classic.
    300, beat(H2, 17, -1), replace(H3, token=18), 500, TimersDue(), join(M3, 19, new_member_id="c3"),
    VIEWS,
    Heartbeat(20, "c3", NOW, "i3"), SyncGroup(21, "c3", NOW, "i3"), SyncGroup(22, "m1", NOW),
    LeaveGroup(23, (Leaver("", "i3"), Leaver("m1"))),
    RESTART, VIEWS,
    replace(H3, token=24), VIEWS,
)  # fmt: skip

#: Subscriptions narrow before the next target: no partition of an unsubscribed topic stays or comes.
NARROWED: Final[Sequence[Step]] = (
    replace(H1, token=1, server_assignor=None), beat(H1, 2, NOW, subscribed_topic_names=("b",)),
    VIEWS,
    100, beat(H1, 3, NOW), beat(H1, 4, NOW, {A: (1,), B: (0, 1)}), beat(H1, 5, NOW, {B: (0, 1)}),
    VIEWS,
    400, TimersDue(), 500, replace(H3, token=6, subscribed_topic_names=("a", "b")), beat(H1, 7, NOW, {B: ()}),
    VIEWS,
    beat(H3, 8, NOW, {}), beat(H3, 9, -2),
    100, replace(H3, token=10, member_id="m4", subscribed_topic_names=("b",)),
    VIEWS,
    beat(H3, 11, NOW, {A: (0,)}, member_id="m4"), beat(H3, 12, NOW, {}, member_id="m4"),
    beat(H1, 13, NOW, {B: (0, 1)}, subscribed_topic_names=("a",)), 500, TimersDue(), beat(H1, 14, NOW, {}),
    VIEWS,
    beat(H1, 15, NOW, {A: (0, 1, 2, 3)}, subscribed_topic_regex="b|z", subscribed_topic_names=()),
    VIEWS, RESTART, TimersDue(), beat(H1, 16, NOW, {}), beat(H3, 17, NOW, {}, member_id="m4"),
    VIEWS,
)  # fmt: skip

#: Heartbeats that change no classic group: refused ones, and one whose conversion is not saved.
REFUSED: Final[Sequence[Step]] = (
    replace(H1, token=1, member_epoch=4), replace(H1, token=2, subscribed_topic_names=None),
    VIEWS,
    join(C1, 3), 100, join(M3, 4, needs_known_id=False),
    50, replace(H2, token=7, subscribed_topic_regex="("),
    replace(H3, token=8, member_id="m7", server_assignor="other"), replace(H1, token=17, member_epoch=1),
    5_850, TimersDue(),
    SyncGroup(5, "c1", NOW, assignments={"c1": b"\xff", "m3": b""}), SAVED,
    replace(H1, token=18),
    VIEWS,
    join(C1, 19, "c1"), join(M3, 20, "m3"), replace(H1, token=6),
    VIEWS,
    Heartbeat(9, "c1", NOW), beat(H1, 10, -1), beat(H1, 11, 3),
    60, join(C1, 12, "c1", protocols=(Protocol("range", b"\xff"),)), join(M3, 13, "m3"),
    replace(H1, token=14),
    VIEWS,
    Heartbeat(15, "c1", NOW), Heartbeat(16, "m3", NOW, "i3"),
)  # fmt: skip

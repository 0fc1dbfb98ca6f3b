"""The ends of turns and replays: the state at each effect, and what is not logged."""

from __future__ import annotations

from typing import Any

import pytest

from faust_assigner.app.recovery import by_partition as module
from faust_assigner.app.recovery.batched_replay import to_batch
from faust_assigner.app.recovery.decoding import ANYTHING
from faust_assigner.app.tables import flushing
from faust_assigner.snapshots.sst import OFFSET_KEY
from tests.unit.app.recovery.test_batched_replay import LOG, OTHER, Turn, database, records
from tests.unit.app.recovery.test_by_partition import A, B, restores
from tests.unit.app.recovery.test_by_partition import made as by_partition
from tests.unit.app.recovery.test_replay_end import Recovery
from tests.unit.app.recovery.test_replay_end import made as loop

__all__ = ["by_partition", "database", "loop"]


async def test_a_turn_counts_from_where_the_last_turn_ended() -> None:
    """A position that stays, at any offset, is neither written nor a move."""
    turn = Turn()
    turn.consumer.positions = {LOG: 4, OTHER: 7}
    assert not await turn.take()
    assert turn.acts == []
    assert await turn.take(other=([7], 9))
    assert await turn.take(log=([], 5))
    assert not await turn.take()
    assert turn.acts == [("write", OTHER, [7], 9), ("write", LOG, [], 5)]


async def test_a_recovery_has_ended_before_its_end_is_signalled(loop: Recovery) -> None:
    """The task that waits for the signal reads the state at once; buffers are written first."""
    acts: list[Any] = []
    loop.active_offsets[A] = 6
    loop.flush_buffers = lambda: acts.append("flush")  # type: ignore[method-assign]
    loop._set_recovery_ended = lambda: (  # type: ignore[method-assign]
        acts.append(("ended", loop.signal_recovery_end.is_set()))
        or setattr(loop, "in_recovery", False)
    )
    loop._maybe_end()
    assert acts == ["flush", ("ended", False)]
    assert loop.signal_recovery_end.is_set()
    loop._maybe_end()
    assert len(acts) == 2


async def test_a_replay_writes_its_rows_while_the_partitions_still_count_as_replayed(
    by_partition: Any,
) -> None:
    """A failed write in this flush begins the recovery again."""
    recovery = by_partition
    recovery.active_offsets, recovery.active_highwaters = {A: 4, B: 5}, {A: 9, B: 9}
    seen: list[Any] = []
    recovery.flush_buffers = lambda: seen.append(("flush", recovery.actives.replayed))
    recovery._set_recovery_ended = lambda: seen.append(("ended", recovery.actives.replayed))
    await recovery.actives._replay(frozenset({A, B}))
    assert seen == [("flush", {A, B}), ("ended", frozenset())]


def test_a_batch_has_each_of_many_keys(database: Any) -> None:
    """The last value of a key counts, a deletion as well; the order of the keys does not matter."""
    database.put(b"e", b"old")
    rows = records(
        (b"c", b"1"), (b"a", b"2"), (b"e", None), (b"b", b""), (b"a", b"3"), (b"d", b"4")
    )
    batch, refused = to_batch(rows, 17, ANYTHING)
    database.write(batch)
    assert list(refused) == []
    assert dict(database.items()) == {
        b"a": b"3",
        b"b": b"",
        b"c": b"1",
        b"d": b"4",
        OFFSET_KEY: b"16",
    }


async def test_a_part_counts_as_restored_before_its_held_changes_are_written(
    by_partition: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer of held changes asks whether the partition is restored."""
    recovery, seen = by_partition, list[Any]()
    restores(recovery, A, B)
    monkeypatch.setattr(
        flushing, "resume", lambda app, tps: seen.append((set(tps), set(recovery.actives.complete)))
    )
    await recovery.actives.restore({A, B})
    assert seen == [({A}, {A}), ({B}, {A, B})]


async def test_the_time_of_an_assignment_is_logged_in_milliseconds(
    by_partition: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """The time begins before the roles are noted and ends when standbys are followed."""
    caplog.set_level("INFO")
    recovery, now = by_partition, iter([100.0, 102.25])
    monkeypatch.setattr(module, "monotonic", lambda: next(now))

    async def roles(*_: Any) -> Any:
        return {A}, {B, LOG}

    async def nothing(*_: Any) -> None:
        """Return at once."""

    recovery.books.take, recovery.actives.restore, recovery._finish = roles, nothing, nothing
    recovery.books.open_copies = recovery.standbys.follow = nothing
    await recovery._take_on(frozenset({A}), frozenset({B}))
    assert caplog.messages == ["Assigned 1 active and 2 standby changelogs in 2250 ms"]

"""Stories of one partition's log."""

from __future__ import annotations

from collections.abc import Callable

from faust_assigner.broker.storage.cleaning import CleaningRules
from faust_assigner.broker.storage.losses import accept_losses, unexplained_holes, unreadable
from tests.unit.broker.storage.bench import Bench

A, B, C = (b"a", b"1"), (b"b", b"2"), (b"c", b"3")
TRANSACTIONAL = 16


def appended(bench: Bench) -> None:
    """Plain and idempotent batches, retries, gaps, new epochs, and a failed write."""
    bench.step("a plain batch", lambda: bench.append(A, B))
    for sequence, count in ((0, 2), (2, 1), (2, 1), (4, 1), (3, 1), (0, 2), (0, 1)):
        pairs = (A, B, C)[:count]
        bench.now_ms += 10
        bench.step(
            f"sequence {sequence} of {count}",
            lambda: bench.append(*pairs, producer_id=9, epoch=1, sequence=sequence),  # noqa: B023
        )
    for epoch, sequence in ((0, 4), (2, 4), (2, 0), (2, 1)):
        bench.step(
            f"epoch {epoch}, sequence {sequence}",
            lambda: bench.append(C, producer_id=9, epoch=epoch, sequence=sequence),  # noqa: B023
        )
    bench.step(
        "the last sequence", lambda: bench.append(A, producer_id=4, epoch=0, sequence=2**31 - 1)
    )
    bench.step("after the last", lambda: bench.append(A, producer_id=4, epoch=0, sequence=0))
    for number in range(7):
        bench.append(C, producer_id=5, epoch=0, sequence=number)
    bench.step(
        "seven batches of a producer", lambda: bench.append(C, producer_id=5, epoch=0, sequence=0)
    )
    bench.store.fails = True
    bench.step("a full disk", lambda: bench.append(A, producer_id=5, epoch=0, sequence=7))
    bench.store.fails = False
    bench.step("space again", lambda: bench.append(A, producer_id=5, epoch=0, sequence=7, codec=1))
    bench.reads((0, 1, 2, 4, 99))
    bench.times(0, 1_000, 1_003, 1_004, 1_070, 9_999)
    bench.step("idle producers are forgotten", lambda: bench.log.expire_producers(1_061))
    bench.restart()
    bench.step(
        "a retry after the restart", lambda: bench.append(C, producer_id=9, epoch=2, sequence=1)
    )
    bench.step("the next", lambda: bench.append(C, producer_id=9, epoch=2, sequence=2))


def shortened(bench: Bench) -> None:
    """Trims, retention by age and by size, and a deletion."""
    for number in range(8):
        bench.now_ms = 1_000 + 100 * number
        bench.append(A, B, producer_id=9, epoch=0, sequence=2 * number)
    later = bench.planned(4)
    bench.step("trim to the middle of a batch", lambda: bench.log.trim(3))
    bench.reads((0, 2, 3, 4), (10_000,))
    bench.step("trim to the start of a batch", lambda: bench.log.trim(4))
    bench.step("a read that was planned before", later)
    later = bench.planned(4)
    bench.step("trim backwards", lambda: bench.log.trim(2))
    bench.store.fails = True
    bench.step("a full disk", lambda: bench.log.trim(8))
    bench.store.fails = False
    bench.restart()
    for now_ms, retention_ms, size in (
        (2_700, 1_500, -1),
        (2_701, 1_500, -1),
        (2_701, -1, 395),
        (2_701, -1, 317),
        (2_701, -1, 316),
        (2_701, 1_000, 10_000),
        (9_999, 0, 0),
    ):
        bench.step(
            f"at {now_ms} keep {retention_ms} ms and {size} B",
            lambda: bench.log.retain(now_ms, retention_ms=retention_ms, retention_bytes=size),  # noqa: B023
        )
    bench.step("a planned read of what is gone", later)
    bench.step("trim beyond the end", lambda: bench.log.trim(99))
    bench.restart()
    bench.step(
        "a batch into the empty log", lambda: bench.append(C, producer_id=9, epoch=0, sequence=7)
    )
    bench.step("without a time", lambda: bench.append(C, timestamp=-1))
    bench.times(0, 1_700, 9_999)
    bench.step("keep 50 ms", lambda: bench.log.retain(1_751, retention_ms=50, retention_bytes=-1))
    bench.step("it is deleted", bench.log.close)


def transacted(bench: Bench) -> None:
    """Transactions that overlap, commit, abort, are trimmed, and survive a restart."""
    common = {"epoch": 0, "attributes": TRANSACTIONAL}
    bench.step("one begins", lambda: bench.append(A, producer_id=1, sequence=0, **common))
    bench.step("two begins", lambda: bench.append(B, producer_id=2, sequence=0, **common))
    bench.step("a plain batch", lambda: bench.append(C))
    bench.step("one again", lambda: bench.append(B, producer_id=1, sequence=1, **common))
    bench.restart()
    bench.step("one aborts", lambda: bench.ends(1, 0, commits=False))
    bench.step("three begins", lambda: bench.append(C, producer_id=3, sequence=0, **common))
    bench.reads((0, 1, 4), (10_000,))
    bench.step("two commits", lambda: bench.ends(2, 0, commits=True))
    bench.step("three aborts, with a new epoch", lambda: bench.ends(3, 1, commits=False))
    bench.step("three goes on", lambda: bench.append(C, producer_id=3, epoch=1, sequence=0))
    bench.step("an end without a begin", lambda: bench.ends(4, 0, commits=False))
    bench.step("one begins again", lambda: bench.append(A, producer_id=1, sequence=2, **common))
    bench.reads((0, 3, 5, 8), (10_000,))
    bench.step(
        "idle producers, except of open transactions", lambda: bench.log.expire_producers(9_999)
    )
    bench.step("trim to the first marker", lambda: bench.log.trim(4))
    bench.step("trim beyond the first marker", lambda: bench.log.trim(5))
    bench.restart()
    bench.step("trim into the open transaction", lambda: bench.log.trim(11))
    bench.step("one aborts", lambda: bench.ends(1, 0, commits=False))
    bench.reads((11,), (10_000,))
    bench.step("it is deleted", lambda: len(list(bench.log.every_key())))


def compacted(bench: Bench) -> None:
    """Keys with later values, tombstones, null keys, long keys, aborted records, idle producers."""
    rules, long = CleaningRules(0.5, 100), b"k" * 40
    common = {"epoch": 0, "attributes": TRANSACTIONAL}
    bench.append(A, B, C)
    bench.step("one batch", lambda: bench.clean(rules))
    bench.append((b"a", b"4"), (long, b"5"))
    bench.append((b"b", None), producer_id=9, epoch=0, sequence=0)
    bench.append((None, b"6"), (b"d", b"7"), codec=1)
    bench.step(
        "an aborted value", lambda: bench.append((b"c", b"8"), producer_id=1, sequence=0, **common)
    )
    bench.ends(1, 0, commits=False)
    bench.append((long, b"9"), (b"e", b"10"))
    bench.step("an open transaction", lambda: bench.append(A, producer_id=2, sequence=0, **common))
    bench.append((b"e", b"11"))
    bench.now_ms += 50
    later = bench.planned(0)
    bench.step("the first pass", lambda: bench.clean(rules))
    bench.step("a read that was planned before", later)
    bench.reads((0, 1, 4, 5), (10_000,))
    bench.times(0, 1_000, 1_003, 1_006)
    bench.restart()
    bench.now_ms += 99
    bench.step("a pass just before the tombstones end", lambda: bench.clean(rules))
    bench.ends(2, 0, commits=True)
    bench.append((b"f", None), (b"g", None), producer_id=9, epoch=0, sequence=1)
    bench.append((b"f", b"12"), (b"h", b"13"), producer_id=9, epoch=0, sequence=3)
    bench.now_ms += 1
    bench.step("a pass when the tombstones end", lambda: bench.clean(rules))
    bench.restart()
    bench.now_ms += 101
    bench.append((b"a", None), (b"h", None))
    bench.append(C)
    bench.step("few keys in the map", lambda: bench.clean(rules, max_keys=1))
    bench.step("the rest", lambda: bench.clean(rules))
    bench.step("a lag of 100 ms", lambda: bench.clean(CleaningRules(0.5, 100, min_lag_ms=100)))
    bench.now_ms += 300
    bench.append(A)
    bench.step(
        "a greatest lag",
        lambda: bench.clean(CleaningRules(0.5, 100, min_lag_ms=200, max_lag_ms=200)),
    )
    bench.append(B)
    bench.step("all", lambda: bench.clean(rules))
    bench.now_ms += 300
    bench.append(C)
    bench.step("all again", lambda: bench.clean(rules))
    bench.step("trim", lambda: bench.log.trim(9))
    bench.restart()


def unmarked(bench: Bench) -> None:
    """Markers of aborted and committed transactions whose batches compaction has removed."""
    rules = CleaningRules(0.0, 100)
    common = {"attributes": TRANSACTIONAL}
    for producer_id, commits in ((1, False), (2, True), (3, False)):
        bench.append(A, producer_id=producer_id, epoch=0, sequence=0, **common)
        bench.ends(producer_id, 0, commits=commits)
        bench.append(B, producer_id=producer_id, epoch=0, sequence=1)
    bench.append(A)
    for wait_ms in (0, 1, 99, 1, 99):
        bench.now_ms += wait_ms
        bench.append(C)
        bench.step(f"a pass after {wait_ms} ms", lambda: bench.clean(rules))
    bench.reads((0, 4, 7), (10_000,))
    bench.step("trim", lambda: bench.log.trim(9))
    bench.restart()


def lost(bench: Bench) -> None:
    """Batches are missing; the loss is found, refused, accepted, and accepted for good."""
    for number in range(6):
        bench.append(A, B, producer_id=9, epoch=0, sequence=2 * number)
    log = bench.log
    bench.store.write((), [log.batch_key(2), log.index_key(2), log.batch_key(8)])
    bench.restart()
    bench.reads((0, 2, 6), (10_000,))
    log = bench.log
    bench.step("holes", lambda: unexplained_holes(log))
    for size in (1, 10_000):
        found = list(unreadable(log, size, lambda: bench.note("progress")))
        bench.step(f"unreadable, {size} B at a time: {found}")
    bench.step(
        "both are accepted, and the end was at 15",
        lambda: accept_losses(log, [(8, 10), (2, 4), (12, 15)], [8]),
    )
    bench.restart()
    bench.step("holes", lambda: unexplained_holes(bench.log))
    bench.reads((0, 2, 8, 12, 14), (10_000,))
    bench.step("the next offset", lambda: bench.append(C))
    bench.restart()
    bench.step("holes", lambda: unexplained_holes(bench.log))


STORIES: dict[str, Callable[[Bench], None]] = {
    "appended": appended,
    "shortened": shortened,
    "transacted": transacted,
    "compacted": compacted,
    "lost": lost,
    "unmarked": unmarked,
}

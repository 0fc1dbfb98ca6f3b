"""The lives of groups whose rounds overlap, whose workers hand over, and whose memberships are lost."""

from __future__ import annotations

import asyncio
from typing import Any

from faust.types import TP

from tests.unit.app.lives.life import Life, Story
from tests.unit.app.lives.worker import PARTITIONS, Worker

ONCE = {"processing_guarantee": "exactly_once", "broker_commit_interval": 0.5}


class Hesitant(Worker):
    """A worker whose handler of assigned partitions takes two seconds while ``hesitates`` is set."""

    hesitates = False

    def hears(self, signal: str) -> Any:
        """Return a handler that tells the signal, and waits if it is the one of an assignment."""

        async def handler(app: Any, *args: Any, **kwargs: Any) -> None:
            await tell(app, *args, **kwargs)
            if self.hesitates and signal == "on_partitions_assigned":
                await asyncio.sleep(2.0)
                self.told.say("signal", f"{signal} has returned")

        tell = super().hears(signal)
        return handler


async def overlapping(life: Life) -> None:
    """Rounds begin while a handler, a restore or a revocation of the round before is unfinished."""
    settings = {"faust_assigner_follow_up_s": 0.0}
    worker = await life.start("a", Hesitant, **settings)
    await life.round()
    life.orders(0, "x", "y")
    life.orders(1, "w")
    life.orders(2, "z")
    await life.rest()
    await life.commit("a")
    logs = [TP("shop-counts-changelog", p) for p in range(PARTITIONS)]
    newcomer = await life.start("b", Hesitant, **settings)
    newcomer.hesitates = worker.hesitates = True
    newcomer.client.leaderless.update(logs)
    await life.round()
    life.step("the handlers of the round have not returned")
    await life.start("c", Hesitant, **settings)
    await life.round()
    life.tell_states()
    newcomer.hesitates = worker.hesitates = False
    await life.sleep(3.0)
    life.step("the changelogs have no leader for b: its restore is unfinished")
    life.tell_states()
    worker.work_s = 1.0
    for partition in range(PARTITIONS):
        life.orders(partition, f"key-{partition}", f"key-{partition}")
    await life.sleep(0.3)
    await life.stop("c")
    life.workers["b"].client.leaderless.clear()
    await life.round()
    await life.rest(3.0)
    newcomer.client.leaderless.update(logs)
    await life.stop("a")
    await life.round()
    await life.sleep(0.5)
    life.step("an eager round begins before the restore ends")
    newcomer.client.leaderless.clear()
    await life.round(eager=True)
    await life.rest(3.0)


async def overlapping_once(life: Life) -> None:
    """Transactions in cooperative and eager rounds with records in progress, one round after the other."""
    worker = await life.start("a", Hesitant, **ONCE)
    await life.round()
    life.orders(0, "x")
    life.orders(1, "w")
    life.orders(2, "z")
    await life.rest()
    worker.work_s = 1.0
    for partition in range(PARTITIONS):
        life.orders(partition, f"key-{partition}", f"key-{partition}")
    await life.sleep(0.3)
    newcomer = await life.start("b", Hesitant, **ONCE)
    newcomer.hesitates = True
    await life.round()
    await life.start("c", Hesitant, **ONCE)
    await life.round()
    await life.sleep(0.2)
    newcomer.hesitates = False
    life.tell_states()
    await life.rest(3.0)
    worker.work_s = 30.0
    for partition in range(PARTITIONS):
        life.orders(partition, f"key-{partition}")
    await life.sleep(0.7)
    await life.stop("c")
    worker.hurry.set()
    await life.round(eager=True)
    await life.sleep(0.1)
    await life.round(eager=True)
    await life.rest(3.0)


async def snapshot(life: Life) -> None:
    """Workers restore from snapshots and the records after them; a damaged snapshot is refused."""
    folder = life.folder / "snapshots"
    settings = {
        "faust_assigner_snapshots": str(folder),
        "faust_assigner_batched_replay": True,
        "table_standby_replicas": 1,
    }
    await life.start("a", **settings)
    await life.round()
    for partition in range(PARTITIONS):
        life.orders(partition, *(f"key-{n}" for n in range(4)))
    await life.rest()
    await life.commit("a")
    logs = [TP("shop-counts-changelog", p) for p in range(PARTITIONS)]
    for tp in logs[:2]:
        life.snapshot(tp, str(folder))
    life.orders(0, "key-1", "key-9")
    await life.rest()
    life.snapshot(logs[1], str(folder))
    life.step("a snapshot loses its files")
    [newest] = [*folder.glob("shop-counts-changelog/0/*/*.sst")]
    newest.write_bytes(b"")
    await life.stop("a")
    await life.start("b", **settings)
    await life.round()
    await life.rest(3.0)
    life.orders(0, "key-1")
    await life.start("c", **settings)
    await life.round()
    await life.rest(3.0)
    await life.requested(20.0)
    life.orders(1, "key-1")
    await life.rest(3.0)


class Group(Worker):
    """A worker with a membership."""

    is_member = True


async def leaving(life: Life) -> None:
    """Workers hand over when they stop: a dynamic member, a retired one, and not a static one."""
    settings = {"table_standby_replicas": 1, "broker_session_timeout": 60.0}
    worker = await life.start("a", Group, **settings)
    await life.start("b", Group, **settings)
    await life.start("c", Group, consumer_group_instance_id="third", **settings)
    await life.round()
    for partition in range(PARTITIONS):
        life.orders(partition, "x", "y")
    await life.rest(3.0)
    life.workers["b"].work_s = 0.5
    for partition in range(PARTITIONS):
        life.orders(partition, "x", "x")
    await life.sleep(0.2)
    await life.hand_over("b")
    await life.round()
    await life.rest(3.0)
    await life.hand_over("c")
    await life.round()
    await life.rest(3.0)
    static = await life.start("c", Group, consumer_group_instance_id="third", **settings)
    await life.round()
    await life.rest(3.0)
    life.step("c is to retire")
    (static.app.conf.appdir / "retire").touch()
    worker.work_s = 0.0
    life.orders(0, "z")
    await life.hand_over("c")
    await life.round()
    for partition in range(PARTITIONS):
        life.orders(partition, "x")
    await life.rest(3.0)
    await life.hand_over("a")


async def fenced(life: Life) -> None:
    """A session is lost with records in progress: their changes are dropped, others repeat them."""
    await _fenced(life, broker_session_timeout=10.0)


async def fenced_once(life: Life) -> None:
    """A session is lost with open transactions: they are aborted, others repeat their records."""
    await _fenced(life, **ONCE, broker_session_timeout=10.0)


async def _fenced(life: Life, **settings: Any) -> None:
    await life.start("a", Group, **settings)
    worker = await life.start("b", Group, **settings)
    await life.round()
    for partition in range(PARTITIONS):
        life.orders(partition, "x", "y")
    await life.beats(2.0)
    life.tell_states()
    for name in sorted(life.workers):
        await life.commit(name)
    worker.work_s = 3.0
    for partition in range(PARTITIONS):
        life.orders(partition, "v", "x")
    await life.beats(4.0)
    worker.work_s = 9.0
    for partition in range(PARTITIONS):
        life.orders(partition, "x")
    life.step("no heartbeat of b is answered")
    await life.beats(11.0, without="b")
    life.tell_states()
    await life.watch()
    await life.silence("b")
    await life.round(["a"])
    await life.beats(3.0, without="b")
    life.tell_states()
    worker.work_s = 0.0
    worker.hurry.set()
    await life.beats(1.0, without="b")
    worker.beat()
    await life.round()
    await life.beats(3.0)
    life.tell_states()
    for partition in range(PARTITIONS):
        life.orders(partition, "x")
    await life.beats(2.0)
    life.tell_states()


OVERLAPS: dict[str, Story] = {
    story.__name__: story
    for story in (overlapping, overlapping_once, snapshot, leaving, fenced, fenced_once)
}

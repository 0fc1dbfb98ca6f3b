"""The lives of groups."""

from __future__ import annotations

from typing import Any

from faust.types import TP

from tests.unit.app.lives.life import Life, Story
from tests.unit.app.lives.told import tps
from tests.unit.app.lives.worker import PARTITIONS, Worker


async def cooperative(life: Life) -> None:
    """A worker owns all partitions, a second one joins, commits follow, and partitions return."""
    await life.start("a")
    await life.round()
    await life.rest()
    life.orders(0, "x", "y", "x")
    life.orders(2, "z")
    await life.rest()
    await life.start("b")
    await life.round()
    await life.rest()
    life.orders(0, "x")
    life.orders(2, "z", "z")
    await life.rest()
    await life.commit("b")
    await life.stop("b")
    await life.round()
    life.orders(2, "z")
    await life.rest()
    await life.commit("a")


async def eager(life: Life) -> None:
    """Eager rounds revoke all partitions; a record is in progress at the second one."""
    settings = {"faust_assigner_cooperative": False, "table_standby_replicas": 1}
    await life.start("a", **settings)
    await life.round(eager=True)
    life.orders(0, "x", "y")
    life.orders(1, "w")
    await life.rest()
    await life.start("b", **settings)
    life.workers["a"].work_s = 0.4
    life.orders(0, "v", "x")
    await life.sleep(0.1)
    await life.round(eager=True)
    await life.rest()
    life.orders(1, "w")
    life.orders(0, "x")
    await life.rest(3.0)
    await life.stop("a")
    await life.round(eager=True)
    life.orders(1, "w")
    await life.rest()
    await life.commit("b")


async def standbys(life: Life) -> None:
    """Standbys follow, become actives when an owner goes, and are standbys again when it returns."""
    settings = {
        "table_standby_replicas": 1,
        "faust_assigner_stale_reads_s": 5.0,
        "faust_assigner_ledger": str(life.folder / "ledger"),
    }
    await life.start("a", **settings)
    await life.start("b", **settings)
    await life.round()
    await life.rest()
    life.orders(0, "x", "y")
    life.orders(1, "w")
    life.orders(2, "z", "z")
    await life.rest()
    await life.watch()
    await life.requested(3.0)
    await life.watch()
    await life.kill("b")
    await life.watch()
    life.orders(1, "w")
    life.orders(2, "z")
    await life.round()
    await life.rest()
    await life.start("b", **settings)
    await life.round()
    await life.rest()
    life.orders(0, "x")
    await life.requested(20.0)
    life.orders(2, "z")
    await life.rest()
    await life.watch()


async def warm(life: Life) -> None:
    """A worker joins a group with much state: its tasks move once their standbys have caught up."""
    settings = {
        "table_standby_replicas": 1,
        "faust_assigner_acceptable_recovery_lag": 2,
        "faust_assigner_max_warmups": 1,
    }
    await life.start("a", **settings)
    await life.round()
    for partition in range(PARTITIONS):
        life.orders(partition, *(f"key-{n}" for n in range(8)))
    await life.rest()
    await life.commit("a")
    await life.start("b", **settings)
    await life.start("c", **settings)
    await life.round()
    await life.rest()
    for _ in range(5):
        await life.requested(30.0)
    life.orders(0, "key-1")
    await life.rest()


async def exactly_once(life: Life) -> None:
    """Transactions commit, are aborted in an eager round, move, and are fenced."""
    settings = {"processing_guarantee": "exactly_once", "broker_commit_interval": 0.5}
    await life.start("a", **settings)
    await life.round()
    life.orders(0, "x", "y")
    life.orders(1, "w")
    await life.rest()
    life.orders(0, "x")
    life.orders(2, "z")
    await life.sleep(0.1)
    await life.start("b", **settings)
    await life.round()
    await life.rest()
    life.workers["b"].work_s = 2.0
    life.orders(2, "z", "z")
    await life.sleep(0.3)
    await life.round(eager=True)
    await life.rest()
    life.workers["b"].work_s = 0.0
    life.orders(0, "x")
    await life.rest()
    life.step("the broker fences the producers of a")
    for producer in life.logs.producers.values():
        if producer.worker.name == "a":
            producer.fenced = True
    life.orders(0, "y")
    await life.rest(3.0)


class Windows(Worker):
    """A worker that counts in windows of 10 s and passes each closed window on."""

    def declare(self) -> None:
        """Add the windowed table."""
        app = self.app
        self.orders = app.topic("orders", key_type=str, value_type=int, partitions=PARTITIONS)
        self.totals = app.topic("totals", key_type=str, value_type=int, partitions=PARTITIONS)
        self.counts = (
            app.Table(
                "counts",
                key_type=str,
                value_type=int,
                default=int,
                partitions=PARTITIONS,
                on_window_close=self.close,
            )
            .tumbling(10.0, expires=10.0)
            .relative_to(lambda event: event.value)
        )
        app.agent(self.orders, name="count")(self.count)

    async def close(self, key: Any, value: Any) -> None:
        """Tell the closed window."""
        self.told.say("agent", f"closes {key} with {value}")
        await self.totals.send(key=key[0], value=value)

    async def count(self, orders: Any) -> None:
        """Count the orders of a window."""
        async for event in orders.events():
            self.counts[event.key] += 1
            self.told.say(
                "agent",
                f"counts {tps([event.message.tp])}@{event.message.offset}: "
                f"{self.counts[event.key].value()}",
            )


async def windows(life: Life) -> None:
    """Windows close on the owner, also after a move, and once."""
    settings = {"table_cleanup_interval": 1.0, "broker_commit_interval": 1.0}
    await life.start("a", Windows, **settings)
    await life.round()
    life.orders(0, "x", at=1000)
    life.orders(1, "y", at=1000)
    life.orders(2, "z", at=1001)
    await life.rest(3.0)
    life.orders(0, "x", at=1012)
    await life.rest(3.0)
    life.orders(0, "x", at=1024)
    life.orders(1, "y", at=1030)
    await life.rest(3.0)
    await life.start("b", Windows, **settings)
    await life.round()
    await life.rest(3.0)
    life.orders(2, "z", at=1012)
    life.orders(2, "z", at=1040)
    await life.rest(3.0)
    await life.kill("a")
    await life.round()
    life.orders(0, "x", at=1060)
    await life.rest(5.0)


class Sets(Worker):
    """A worker that keeps the offsets of each key in a set."""

    def declare(self) -> None:
        """Add the set table."""
        app = self.app
        self.orders = app.topic("orders", key_type=str, value_type=int, partitions=PARTITIONS)
        self.seen = app.SetTable(
            "seen", key_type=str, value_type=int, partitions=PARTITIONS, start_manager=False
        )
        app.agent(self.orders, name="count")(self.count)

    async def count(self, orders: Any) -> None:
        """Add the record's offset; an order with the value 0 clears the set."""
        async for event in orders.events():
            if event.value:
                self.seen[event.key].add(event.message.offset)
            else:
                self.seen[event.key].clear()
            self.told.say("agent", f"has {event.key}: {sorted(self.seen[event.key])}")


async def sets(life: Life) -> None:
    """Sets grow, move to another worker, are emptied, and come back."""
    settings = {"table_standby_replicas": 1}
    await life.start("a", Sets, **settings)
    await life.round()
    life.orders(0, "x", "y", "x")
    life.orders(2, "z")
    await life.rest(3.0)
    await life.start("b", Sets, **settings)
    await life.round()
    await life.rest(3.0)
    for _ in range(2):
        await life.requested(20.0)
    life.orders(2, "z")
    life.orders(0, "x")
    await life.rest(3.0)
    life.orders(2, "z", at=0)
    await life.rest(3.0)
    await life.stop("a")
    await life.round()
    life.orders(0, "x")
    await life.rest(3.0)


async def recovery(life: Life) -> None:
    """A worker restores from local files, from gaps, markers and a changelog that was cut."""
    await life.start("a")
    await life.round()
    life.orders(0, "x", "y")
    life.orders(1, "w")
    life.orders(2, "z")
    await life.rest()
    await life.commit("a")
    await life.stop("a")
    life.step("the changelogs change meanwhile")
    logs = [TP("shop-counts-changelog", p) for p in range(PARTITIONS)]
    for key, value in (("x", b"7"), ("y", None), ("v", b"8")):
        life.logs.append(logs[0], f'"\\"{key}\\""'.encode(), value)
    life.logs.append_marker(logs[0])
    for n in range(6):
        life.logs.append(logs[1], f'"\\"{n}\\""'.encode(), b"1")
    life.logs.cut(logs[1], 4)
    life.logs.append_marker(logs[2])
    await life.start("a")
    await life.round()
    await life.rest()
    await life.stop("a")
    life.logs.append(logs[0], b"not json", b"1")
    life.logs.append(logs[0], b'"\\"u\\""', b"9")
    life.logs.compact(logs[1])
    await life.start("a", faust_assigner_batched_replay=True)
    await life.round()
    await life.rest()
    await life.start("b", faust_assigner_batched_replay=True)
    await life.round()
    await life.rest()
    life.orders(2, "z")
    await life.rest()


async def slow(life: Life) -> None:
    """A revocation waits for a record in progress; a record without an end is given up."""
    settings = {"broker_rebalance_timeout": 20.0, "broker_session_timeout": 10.0}
    await life.start("a", **settings)
    await life.round()
    await life.rest()
    life.workers["a"].work_s = 3.0
    life.orders(2, "z", "z")
    await life.sleep(0.5)
    await life.start("b", **settings)
    await life.round()
    await life.rest(5.0)
    life.workers["a"].work_s = 300.0
    life.orders(1, "w")
    await life.rest(1.0)
    life.orders(0, "x")
    await life.start("c", **settings)
    await life.round()
    await life.rest()
    life.step("the record of a ends")
    life.workers["a"].hurry.set()
    await life.rest(3.0)
    life.orders(1, "w")
    await life.rest(1.0)


class Several(Worker):
    """A worker with two instances of its agent; only records of the key ``slow`` take time."""

    concurrency = 2

    async def count(self, orders: Any) -> None:
        """Process the records one by one in each instance."""
        async for event in orders.events():
            self.told.say("agent", f"begins {tps([event.message.tp])}@{event.message.offset}")
            if event.key.strip('"') == "slow":
                await self.work()
            self.counts[event.key] += event.value
            self.told.say("agent", f"ends {tps([event.message.tp])}@{event.message.offset}")


async def several(life: Life) -> None:
    """An instance of the agent finishes later records first; commits and a revocation follow."""
    worker = await life.start("a", Several)
    worker.work_s = 4.0
    await life.round()
    life.orders(2, "x", "slow", "y", "z", "y")
    await life.rest(2.0)
    await life.commit("a")
    await life.start("b", Several)
    await life.round()
    life.orders(2, "x")
    await life.rest(2.0)
    await life.commit("b")


async def silent(life: Life) -> None:
    """The coordinator is silent for a worker: it stands still, and starts again with the next round."""
    await life.start("a")
    await life.start("b")
    await life.round()
    life.orders(0, "x", "y")
    life.orders(1, "w")
    life.orders(2, "z")
    await life.rest()
    await life.silence("b")
    life.orders(0, "x")
    life.orders(2, "z")
    await life.rest(1.0, flowing=["a"])
    await life.round(["a"])
    await life.rest(1.0, flowing=["a"])
    life.orders(2, "z")
    await life.rest(1.0, flowing=["a"])
    await life.round()
    await life.rest()
    life.orders(0, "x")
    life.orders(2, "z")
    await life.rest()


async def troubled(life: Life) -> None:
    """A commit fails, a record is poisoned, a table fails, and a partition has no leader."""
    worker = await life.start("a", broker_commit_interval=1.0)
    await life.round()
    life.orders(0, "x", "bad", "y")
    worker.poisoned = frozenset({"bad"})
    await life.rest(3.0)
    life.step("a table fails")
    worker.app.tables.recovery.tables_failed("counts", OSError(28, "No space left on device"))
    life.orders(0, "x")
    await life.rest(15.0)
    life.step("a partition of the changelog has no leader")
    await life.start("b", broker_commit_interval=1.0)
    for one in life.workers.values():
        one.client.leaderless.add(TP("shop-counts-changelog", 2))
    await life.round()
    await life.rest(70.0)
    life.step("it has a leader again")
    for one in life.workers.values():
        one.client.leaderless.clear()
    life.orders(2, "z")
    await life.rest(10.0)
    life.step("a task of the recovery ends")
    [task] = [
        future
        for future in worker.app.tables.recovery._futures
        if getattr(future.__wrapped__, "__name__", "") == "_slurp_changelogs"
    ]
    task.cancel()
    await life.sleep(5.0)


async def shared(life: Life) -> None:
    """A global table: every worker has all rows, and the owners' partitions take turns."""

    class Shared(Worker):
        def declare(self) -> None:
            app = self.app
            self.orders = app.topic("orders", key_type=str, value_type=int, partitions=PARTITIONS)
            self.totals = app.topic("totals", key_type=str, value_type=int, partitions=PARTITIONS)
            self.counts = app.GlobalTable(
                "counts", key_type=str, value_type=int, default=int, partitions=PARTITIONS
            )
            app.agent(self.orders, name="count")(self.count)

    await life.start("a", Shared)
    await life.round()
    life.orders(0, "x", "y")
    life.orders(2, "z")
    await life.rest()
    await life.start("b", Shared)
    await life.round()
    await life.rest(3.0)
    life.orders(0, "x")
    life.orders(2, "z")
    await life.rest(3.0)
    await life.stop("a")
    await life.round()
    life.orders(0, "x")
    await life.rest(3.0)


STORIES: dict[str, Story] = {
    story.__name__: story
    for story in (
        cooperative,
        eager,
        standbys,
        warm,
        exactly_once,
        windows,
        sets,
        recovery,
        slow,
        several,
        silent,
        troubled,
        shared,
    )
}

"""The worker process under test: orders joined with customers, totals in a table with a changelog.

All its settings are in the environment (``FLEET_*``). Its journal has one JSON line per event,
written straight to the file descriptor, so that a killed worker's journal ends at its last finished
record:

    {"kind": "assigned", "generation": 4, "actives": [0, 3], "standbys": [1]}
    {"kind": "recovery", "generation": 4, "replay": {"0": 17, "3": 0}}     records to replay, actives only
    {"kind": "ready", "generation": 4}                                     streams resume
    {"kind": "order", "partition": 0, "offset": 512, "began": 1763.25}     an order is done
    {"kind": "revoked", "orders": [3], "rebalancing": true}                signal of a revocation
    {"kind": "rebalance", "what": "start", "rebalancing": true}            sensor call: start, return or end

On SIGUSR1 the worker writes its totals beside the journal, the active part and its standbys. With
``FLEET_OUTPUTS`` each order's number goes on to the topic ``APP_ID-outputs`` under its customer.
With ``FLEET_WINDOWS`` orders are counted in windows of ten offsets, whose rows go to
``APP_ID-closed`` when they are closed, and each customer has a set of the numbers of its orders.
``FLEET_RETURNS`` is the version of the app after a deploy: a further agent adds up the topic
``APP_ID-returns`` in a further table. A file ``hold`` beside the journal holds up one order: its
text is ``sleep SECONDS PARTITION`` (the agent awaits) or ``block SECONDS PARTITION`` (the event loop stands).
If a file ``recovering`` is there at the start, the sets have a callback of ``on_recover`` that
ends when the file is gone:

    {"kind": "callback", "what": "begin"}      then "end", or "cancelled"
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import faust
from faust.types import TP

ENV = {
    name.removeprefix("FLEET_"): value
    for name, value in os.environ.items()
    if name.startswith("FLEET_")
}
APP_ID, PARTITIONS = ENV["APP_ID"], int(ENV["PARTITIONS"])
JOURNAL = Path(ENV["JOURNAL"])
HOLD = JOURNAL.with_name("hold")
RECOVERING = JOURNAL.with_name("recovering")
ASSIGNORS = {
    "stock": "faust.assignor:PartitionAssignor",
    "ours": "faust_assigner:PartitionAssignor",
}
PRELOADED = "bulk-"
#: Seconds that each order takes before its total changes.
WORK_S = float(ENV.get("WORK_S", "0"))
SENDS_OUTPUTS = ENV.get("OUTPUTS") == "1"
HAS_WINDOWS = ENV.get("WINDOWS") == "1"
TAKES_RETURNS = ENV.get("RETURNS") == "1"
#: In offsets, which count as seconds: more than the offsets sent in any pause of the load.
WINDOW, EXPIRES = 10.0, 60.0

SETTINGS = {
    "web_enabled": False,
    "canonical_url": ENV.get("URL", f"http://{ENV['NAME']}:6066"),
    "broker_session_timeout": float(ENV["SESSION_S"]),
    "broker_heartbeat_interval": min(1.0, float(ENV["SESSION_S"]) / 5),
    **json.loads(ENV.get("SETTINGS", "{}")),
}

# A signal before the handler exists would end the worker.
signal.signal(signal.SIGUSR1, signal.SIG_IGN)

app = faust.App(
    APP_ID,
    broker="kafka://" + ENV["BOOTSTRAP"],
    PartitionAssignor=ASSIGNORS[ENV["ASSIGNOR"]],
    consumer_group_instance_id=ENV["INSTANCE"] or None,  # else all workers share one name
    datadir=ENV["DATA"],
    store="rocksdb://",
    topic_partitions=PARTITIONS,
    topic_disable_leader=True,
    table_standby_replicas=int(ENV["REPLICAS"]),
    broker_commit_interval=1.0,
    consumer_auto_offset_reset="earliest",
    **SETTINGS,
)


class Order(faust.Record, serializer="json"):
    """An order: ``number`` counts its customer's orders from 0 without a gap."""

    number: int
    amount: int


class Totals(faust.Record, serializer="json"):
    """A customer; ``numbers`` counts orders, ``repeats`` and ``missing`` the faults of at-least-once."""

    amount: int = 0
    numbers: int = 0
    repeats: int = 0
    missing: int = 0
    strangers: int = 0


customers_topic = app.topic(f"{APP_ID}-customers", key_type=str, value_type=int)
orders_topic = app.topic(f"{APP_ID}-orders", key_type=str, value_type=Order)
outputs_topic = app.topic(f"{APP_ID}-outputs", key_type=str, value_type=int, partitions=PARTITIONS)
rates = app.Table("rates", key_type=str, value_type=int, partitions=PARTITIONS)
totals = app.Table("totals", key_type=str, value_type=Totals, partitions=PARTITIONS)

if HAS_WINDOWS:
    closed_topic = app.topic(f"{APP_ID}-closed", key_type=str, value_serializer="json")

    async def close_window(key: Any, row: Any) -> None:
        """Send a closed window."""
        await closed_topic.send(key=key[0], value={"begin": key[1][0], "row": row})

    recent = (
        app.Table(
            "recent",
            key_type=str,
            default=dict,
            partitions=PARTITIONS,
            on_window_close=close_window,
        )
        .tumbling(WINDOW, expires=EXPIRES)
        .relative_to(lambda event: float(event.message.offset))
    )
    seen = app.SetTable("seen", key_type=str, value_type=int, partitions=PARTITIONS)


@app.agent(customers_topic)
async def remember_customer(customers: faust.StreamT[int]) -> None:
    """Keep each customer's rate."""
    async for customer, rate in customers.items():
        rates[customer] = rate


async def hold_up() -> None:
    """Take the time that the file asks for, if the order's partition is the file's."""
    how, seconds, partition = HOLD.read_text().split()
    if faust.current_event().message.partition != int(partition):
        return
    HOLD.unlink()
    if how == "block":
        time.sleep(float(seconds))
    else:
        await asyncio.sleep(float(seconds))


@app.agent(orders_topic)
async def add_order(orders: faust.StreamT[Order]) -> None:
    """Join the order with its customer and add it to the customer's total."""
    async for customer, order in orders.items():
        if WORK_S:
            await asyncio.sleep(WORK_S)
        if HOLD.exists():
            await hold_up()
        totals[customer] = added(totals.get(customer) or Totals(), order, rates.get(customer))
        if HAS_WINDOWS:
            row = recent[customer].value()
            recent[customer] = {"count": row.get("count", 0) + 1, "last": order.number}
            seen[customer].add(order.number)
        if SENDS_OUTPUTS:
            await outputs_topic.send(key=customer, value=order.number)


if TAKES_RETURNS:
    returns_topic = app.topic(f"{APP_ID}-returns", key_type=str, value_type=Order)
    returned_topic = app.topic(f"{APP_ID}-returned", key_type=str, value_type=int)
    returned = app.Table("returned", key_type=str, value_type=Totals, partitions=PARTITIONS)

    @app.agent(returns_topic)
    async def take_back(returns: faust.StreamT[Order]) -> None:
        """Add the return to its customer's row and pass its number on."""
        async for customer, order in returns.items():
            returned[customer] = added(returned.get(customer) or Totals(), order, rate=1)
            await returned_topic.send(key=customer, value=order.number)


def added(before: Totals, order: Order, rate: int | None) -> Totals:
    """Return the totals after this order; a repeated order changes only ``repeats``."""
    if order.number < before.numbers:
        return before.derive(repeats=before.repeats + 1)
    return before.derive(
        amount=before.amount + order.amount,
        numbers=order.number + 1,
        missing=before.missing + order.number - before.numbers,
        strangers=before.strangers + (rate is None),
    )


def as_dicts(table: Any) -> dict[str, dict[str, int]]:
    """Return the rows of partitions that this worker owns."""
    return {key: row.asdict() for key, row in table.items()}


def copies() -> dict[str, dict[str, int]]:
    """Return the rows of partitions for which this worker is a standby."""
    store, changelog = totals.data, totals.changelog_topic.get_topic_name()
    databases = [
        db
        for partition, db in store._dbs.items()
        if TP(changelog, partition) in app.assignor.assigned_standbys()
    ]
    return {
        store._decode_key(key): store._decode_value(value).asdict()
        for db in databases
        for key, value in store._visible_items(db)
    }


def sets() -> dict[str, list[int]]:
    """Return the sets of customers whose totals this worker has."""
    return {k: sorted(seen[k]) for k in totals.keys() if k in seen} if HAS_WINDOWS else {}  # noqa: SIM118


class Journal(faust.Sensor):
    """Write the worker's events, from Faust's own sensor calls and signals."""

    def __post_init__(self) -> None:
        self.file = os.open(JOURNAL, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        #: Partition and offset of a record in progress -> its start.
        self.began: dict[tuple[int, int], float] = {}

    def write(self, kind: str, **row: Any) -> None:
        """Append a line, unbuffered."""
        os.write(
            self.file,
            json.dumps({"kind": kind, "at": round(time.time(), 4), **row}).encode() + b"\n",
        )

    def on_stream_event_in(self, tp: Any, offset: int, stream: Any, event: Any) -> None:
        """Note the start of a record."""
        super().on_stream_event_in(tp, offset, stream, event)
        if tp.topic == orders_topic.get_topic_name():
            self.began[tp.partition, offset] = time.time()

    def on_stream_event_out(
        self, tp: Any, offset: int, stream: Any, event: Any, state: Any = None
    ) -> None:
        """Write that a record is done."""
        super().on_stream_event_out(tp, offset, stream, event, state)
        if tp.topic == orders_topic.get_topic_name():
            began = self.began.pop((tp.partition, offset), None)
            self.write(
                "order",
                partition=tp.partition,
                offset=offset,
                began=round(time.time() if began is None else began, 4),
            )

    def on_rebalance_start(self, app: Any) -> Any:
        """Write the start of a round."""
        self.write("rebalance", what="start", rebalancing=app.rebalancing)
        return super().on_rebalance_start(app)

    def on_rebalance_return(self, app: Any, state: Any) -> None:
        """Write the return of a round."""
        self.write("rebalance", what="return", rebalancing=app.rebalancing)

    def on_rebalance_end(self, app: Any, state: Any) -> None:
        """Write the end of a round: all tables are restored."""
        self.write("rebalance", what="end", rebalancing=app.rebalancing)


journal = Journal()
journal.write("start", pid=os.getpid())
app.sensors.add(journal)


def generation_of(app: Any) -> int:
    """Return the group's generation; Faust's own number does not change in cooperative rounds."""
    said = getattr(app.assignor, "generation", -1)
    return said if said > 0 else app.consumer_generation_id


def numbers_of(tps: Any, topic: str) -> list[int]:
    """Return the partition numbers of ``topic`` among ``tps``, ascending."""
    return sorted(tp.partition for tp in tps if tp.topic == topic)


@app.on_partitions_assigned.connect
async def tell_assignment(app: Any, assigned: Any, **_: Any) -> None:
    """Write the assigned partitions; from the first call on, write each recovery's replay."""
    changelog, orders = totals.changelog_topic.get_topic_name(), orders_topic.get_topic_name()
    journal.write(
        "assigned",
        generation=generation_of(app),
        actives=numbers_of(assigned, orders),
        standbys=numbers_of(app.assignor.assigned_standbys(), changelog),
    )
    recovery = app.tables.recovery

    def tell_replay(tps: Any, offsets: Any, ends: Any) -> None:
        journal.write(
            "recovery",
            generation=generation_of(app),
            replay={
                tp.partition: ends[tp] - (-1 if offsets[tp] is None else offsets[tp])
                for tp in sorted(tps)
                if tp.topic == changelog
            },
        )

    if "_build_offsets" not in vars(recovery):
        build = recovery._build_offsets

        def telling(consumer: Any, tps: Any, offsets: Any, title: str) -> Any:
            if title == "active":
                tell_replay(tps, offsets, recovery.active_highwaters)
            return build(consumer, tps, offsets, title)

        recovery._build_offsets = telling
    if hasattr(recovery, "actives") and "restore" not in vars(recovery.actives._batches):
        bring_up = recovery.actives._batches.restore

        def telling_too(tps: Any, offsets: Any, highwaters: Any, stop: Any) -> Any:
            if recovery.is_flowing and offsets is recovery.active_offsets:
                tell_replay(tps, offsets, highwaters)
            return bring_up(tps, offsets, highwaters, stop)

        recovery.actives._batches.restore = telling_too


async def wait_in_callback() -> None:
    """Write the begin of the callback; wait until the file is gone, and write the end."""
    journal.write("callback", what="begin")
    try:
        while RECOVERING.exists():
            await asyncio.sleep(0.05)
    except asyncio.CancelledError:
        journal.write("callback", what="cancelled")
        raise
    journal.write("callback", what="end")


if HAS_WINDOWS and RECOVERING.exists():
    seen.on_recover(wait_in_callback)


@app.on_partitions_revoked.connect
async def tell_revocation(app: Any, revoked: Any, **_: Any) -> None:
    """Write the revoked partitions."""
    orders = numbers_of(revoked, orders_topic.get_topic_name())
    journal.write("revoked", orders=orders, rebalancing=app.rebalancing)


@app.on_rebalance_complete.connect
async def tell_ready(app: Any, **_: Any) -> None:
    """Write that tables are restored."""
    journal.write("ready", generation=generation_of(app))


@app.task
async def answer_sigusr1() -> None:
    """Write the totals on SIGUSR1, each file by a rename, so that no reader sees half a file."""

    def dump() -> None:
        # The totals come last, because readers wait for them.
        for name, rows in (
            ("sets", sets()),
            ("copies", copies()),
            ("returned", as_dicts(returned) if TAKES_RETURNS else {}),
            ("totals", as_dicts(totals)),
        ):
            whole = JOURNAL.with_suffix(".tmp")
            whole.write_text(
                json.dumps({k: row for k, row in rows.items() if not k.startswith(PRELOADED)})
            )
            whole.rename(JOURNAL.with_suffix(f".{name}"))

    app.loop.add_signal_handler(signal.SIGUSR1, dump)


if __name__ == "__main__":
    app.main()

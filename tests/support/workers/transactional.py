"""A worker that passes numbers on, exactly once; ``EXACTLY_*`` are its settings.

``EXACTLY_AGENT`` is the way records are read. ``one`` reads one by one with a sum in a table.
``tally`` passes on the count of a key so far. ``take`` and ``take_events`` read batches. ``slow``
reads four records at a time and keeps working after each send. ``regroup`` repartitions the
records first. ``EXACTLY_BESIDE`` is the id of a second app in this process with its own topics.
With ``EXACTLY_OTHERS`` a second agent counts and passes on ``APP_ID-others``.
``EXACTLY_MEMBER=dynamic`` makes a member without an instance id.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

import faust

ENV = {
    name.removeprefix("EXACTLY_"): value
    for name, value in os.environ.items()
    if name.startswith("EXACTLY_")
}
#: Seconds within each record of ``one``, between its change of the table and its send.
WORK_S = float(ENV.get("WORK_S", "0"))
#: The numbers at which ``regroup`` fails.
FAILING = {int(number) for number in ENV.get("FAILING", "").split()}


def configured(app_id: str) -> faust.App:
    """An app without agents."""
    return faust.App(
        app_id,
        broker="kafka://" + ENV["BOOTSTRAP"],
        PartitionAssignor="faust_assigner:PartitionAssignor",
        processing_guarantee=ENV.get("GUARANTEE", "exactly_once"),
        consumer_group_instance_id=None if ENV.get("MEMBER") == "dynamic" else ENV["NAME"],
        canonical_url=f"http://{ENV['NAME']}:6066",
        datadir=f"{ENV['DATA']}-{app_id}",
        store="rocksdb://",
        topic_partitions=4,
        topic_disable_leader=True,
        table_standby_replicas=1,
        broker_session_timeout=6.0,
        broker_heartbeat_interval=1.0,
        broker_commit_interval=float(ENV.get("COMMIT_S", "2.8")),
        consumer_auto_offset_reset="earliest",
        web_enabled=False,
    )


def make_app(app_id: str) -> faust.App:
    """The app that reads ``APP_ID-numbers`` and writes ``APP_ID-passed-on``."""
    app = configured(app_id)
    numbers = app.topic(f"{app_id}-numbers", key_type=str, value_type=int, partitions=4)
    passed_on = app.topic(f"{app_id}-passed-on", key_type=str, value_type=int, partitions=4)
    sums = app.Table("sums", key_type=str, value_type=int, partitions=4, default=int)

    async def one(stream: Any) -> None:
        """A record in, a change of the table and a record out."""
        async for key, value in stream.items():
            sums[key] += value
            await asyncio.sleep(WORK_S)
            await passed_on.send(key=key, value=value)

    async def tally(stream: Any) -> None:
        """A record in, a change of the table, and the row's new value out."""
        async for key, _ in stream.items():
            sums[key] += 1
            await passed_on.send(key=key, value=sums[key])

    async def take(stream: Any) -> None:
        """Records in by tens, a record out for each."""
        async for values in stream.take(10, within=0.2):
            for value in values:
                await passed_on.send(key=str(value), value=value)

    async def take_events(stream: Any) -> None:
        """Read events by tens, a record out for each."""
        async for events in stream.take_events(10, within=0.2):
            for event in events:
                await passed_on.send(key=event.key, value=event.value)

    async def slow(stream: Any) -> None:
        """A record out, then work, so that at each moment some record is half done."""
        async for key, value in stream.items():
            await passed_on.send(key=key, value=value)
            await asyncio.sleep(0.3)

    async def regroup(stream: Any) -> None:
        """A record to the topic of ``group_by``, and from there a record out, or an error."""
        async for value in stream.group_by(str, name="text", partitions=4):
            if value in FAILING:
                raise ValueError(value)
            await passed_on.send(key=str(value), value=value)

    agent = {made.__name__: made for made in (one, tally, take, take_events, slow, regroup)}[
        ENV.get("AGENT", "one")
    ]
    app.agent(numbers, concurrency=4 if agent is slow else 1)(agent)
    if ENV.get("OTHERS"):
        add_other(app, app_id, passed_on)
    return app


def add_other(app: faust.App, app_id: str, passed_on: Any) -> None:
    """Add an agent that counts ``APP_ID-others`` in a table of its own, and passes them on."""
    others = app.topic(f"{app_id}-others", key_type=str, value_type=int, partitions=4)
    counts = app.Table("counts", key_type=str, value_type=int, partitions=4, default=int)

    async def other(stream: Any) -> None:
        """A record in, a change of another table and a record out."""
        async for key, value in stream.items():
            counts[key] += 1
            await passed_on.send(key=key, value=value)

    app.agent(others)(other)


app = make_app(ENV["APP_ID"])

if __name__ == "__main__":
    if beside_id := ENV.get("BESIDE"):
        beside = make_app(beside_id)
        beside.in_worker = True  # as the worker sets it for its first app
        faust.Worker(app, beside, loglevel="info").execute_from_commandline()
    else:
        app.main()

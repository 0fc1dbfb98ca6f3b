"""The app with a journal: what a worker was given and what it processed, one JSON line each.

The demo and the tests start this instead of ``app.py``; the app itself knows nothing of it. Lines go
straight to the file descriptor, so a killed worker's journal ends at its last processed record.
SIGUSR1 makes the worker write its active part of the tables beside the journal.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import faust

from examples.orders.app import app, customers_topic, orders_topic, rates, totals

JOURNAL = Path(os.environ["ORDERS_JOURNAL"])
# It may be asked before it listens, and would end by that.
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
SOURCES = {customers_topic.get_topic_name(), orders_topic.get_topic_name()}


class Journal(faust.Sensor):
    """Writes the journal from Faust's own sensor calls."""

    def __post_init__(self) -> None:
        self.file = os.open(JOURNAL, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, kind: str, **row: Any) -> None:
        """Append one line, unbuffered."""
        row = {"kind": kind, "at": round(time.time(), 4), **row}
        os.write(self.file, json.dumps(row).encode() + b"\n")

    def on_stream_event_out(
        self, tp: Any, offset: int, stream: Any, event: Any, state: Any = None
    ) -> None:
        """Journal each record once its agent is done with it."""
        super().on_stream_event_out(tp, offset, stream, event, state)
        if tp.topic in SOURCES:
            self.write(tp.topic, partition=tp.partition, offset=offset)


journal = Journal()
app.sensors.add(journal)


def partitions_of(tps: Any, topic: str) -> list[int]:
    """The partition numbers of ``topic`` among ``tps``, ascending."""
    return sorted(tp.partition for tp in tps if tp.topic == topic)


@app.on_partitions_assigned.connect
async def write_assignment(app: Any, assigned: Any, **_: Any) -> None:
    """Journal what this worker was given."""
    changelog = totals.changelog_topic.get_topic_name()
    journal.write(
        "assigned",
        actives=partitions_of(assigned, orders_topic.get_topic_name()),
        standbys=partitions_of(app.assignor.assigned_standbys(), changelog),
    )


@app.task
async def answer_sigusr1() -> None:
    """Write the tables on SIGUSR1, in one rename, so that a reader never sees half a file."""

    def dump() -> None:
        mine = set(partitions_of(app.assignor.assigned_actives(), orders_topic.get_topic_name()))
        whole = JOURNAL.with_suffix(".tables.tmp")
        whole.write_text(
            json.dumps(
                {
                    "partitions": sorted(mine),
                    "rates": dict(rates.items()),
                    "totals": {key: value.asdict() for key, value in totals.items()},
                }
            )
        )
        whole.rename(JOURNAL.with_suffix(".tables"))

    app.loop.add_signal_handler(signal.SIGUSR1, dump)
    journal.write("started", pid=os.getpid())


if __name__ == "__main__":
    app.main()

"""The app with a journal of its assignments and processed records: a JSON line for each.

The demo and the tests start this module instead of ``app.py``; the app does not depend on it. The worker
writes each line unbuffered, so a killed worker's journal ends at its last processed record.
On SIGUSR1 the worker writes its active rows of the tables beside the journal.
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
# A SIGUSR1 before the handler is installed would end the process.
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
SOURCES = {customers_topic.get_topic_name(), orders_topic.get_topic_name()}


class Journal(faust.Sensor):
    """Write the journal from Faust's sensor calls."""

    def __post_init__(self) -> None:
        self.file = os.open(JOURNAL, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, kind: str, **row: Any) -> None:
        """Append one line, unbuffered."""
        row = {"kind": kind, "at": round(time.time(), 4), **row}
        os.write(self.file, json.dumps(row).encode() + b"\n")

    def on_stream_event_out(
        self, tp: Any, offset: int, stream: Any, event: Any, state: Any = None
    ) -> None:
        """Log each record to the journal after its agent has processed it."""
        super().on_stream_event_out(tp, offset, stream, event, state)
        if tp.topic in SOURCES:
            self.write(tp.topic, partition=tp.partition, offset=offset)


journal = Journal()
app.sensors.add(journal)


def partitions_of(tps: Any, topic: str) -> list[int]:
    """Return the partition numbers of ``topic`` among ``tps``, ascending."""
    return sorted(tp.partition for tp in tps if tp.topic == topic)


@app.on_partitions_assigned.connect
async def write_assignment(app: Any, assigned: Any, **_: Any) -> None:
    """Log this worker's assignment to the journal."""
    changelog = totals.changelog_topic.get_topic_name()
    journal.write(
        "assigned",
        actives=partitions_of(assigned, orders_topic.get_topic_name()),
        standbys=partitions_of(app.assignor.assigned_standbys(), changelog),
    )


@app.task
async def answer_sigusr1() -> None:
    """Write the tables on SIGUSR1, with an atomic rename: readers never see a partial file."""

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

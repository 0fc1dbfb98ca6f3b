"""Measure ``faust-assigner status`` after the answers have arrived.

    python -m benchmarks.status [--members N] [--runs N] [--json FILE]

A generated group has N members with 10 tasks each, two source topics and two tables. Two steps are
measured in CPU time. The first turns the coordinator's answer and every worker's document, as bytes, into
the report. The second turns the report into JSON and into text, for one screen and for all members. The
fastest of several runs counts: other processes on the machine only add time.
"""

from __future__ import annotations

import argparse
import io
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from faust_assigner.cli.status import collect_rarely
from faust_assigner.status.build import build
from faust_assigner.status.evidence import Heard
from faust_assigner.status.render import render
from faust_assigner.status.report import ANSWERED
from faust_assigner.wire.documents import dumps
from faust_assigner.wire.worker_status import decode_status, encode_document
from tests.support.status import group

SOURCES = ("orders", "customers")
LOGS = ("shop-totals-changelog", "shop-rates-changelog")
TASKS_EACH = 10


def measure(members: int) -> dict[str, float]:
    """Return step -> CPU seconds, and sizes in bytes."""
    made = group(members, topics=dict.fromkeys((*SOURCES, *LOGS), members * TASKS_EACH))
    documents = {
        made.claims[name].url: encode_document(made.status_of(name)) for name in made.claims
    }
    entity = made.entity()
    found: dict[str, float] = {
        "group_bytes": sum(
            len(m.member_metadata) + len(m.member_assignment) for m in entity.members
        ),
        "documents_bytes": sum(map(len, documents.values())),
    }

    def timed(name: str, work: Callable[[], Any]) -> Any:
        began = time.process_time()
        done = work()
        found[name] = time.process_time() - began
        return done

    described = timed("decode the group", made.described)
    heard = timed(
        "decode the workers",
        lambda: {u: Heard(answer=ANSWERED, status=decode_status(d)) for u, d in documents.items()},
    )
    evidence = made.evidence(group=described, heard=heard)
    report = timed("build the report", lambda: build(evidence))
    timed("write JSON", lambda: dumps(report))
    for name, rows in (("print all members", None), ("print one screen", 20)):
        console = Console(file=io.StringIO(), width=200, highlight=False)
        timed(name, lambda console=console, rows=rows: console.print(render(report, rows=rows)))
    found["decode and build"] = sum(
        found[step] for step in ("decode the group", "decode the workers", "build the report")
    )
    return found


def main() -> None:
    """Print a table, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=3, help="the fastest one counts")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    collect_rarely()
    runs = [measure(chosen.members) for _ in range(chosen.runs)]
    found = min(runs, key=lambda run: run["decode and build"])
    table = Table("step", "CPU seconds", title=f"status of {chosen.members:,} members")
    for name, value in found.items():
        table.add_row(name, f"{value:,.0f}" if name.endswith("bytes") else f"{value:.3f}")
    Console().print(table)
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()

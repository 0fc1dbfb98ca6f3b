"""The demo's files after its workers have ended: snapshots of the group's status, and commands for them."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from aiokafka.errors import KafkaError

from faust_assigner.errors import FaustAssignerError
from faust_assigner.status.build import build
from faust_assigner.status.collect import Looks, Where
from faust_assigner.wire.documents import dumps
from faust_assigner.wire.worker_status import Rounds, encode_document

#: The pip requirement for the commands of :func:`further`; in a clone it is the source tree.
EXTRA = "-e '.[ledger]'" if Path("setup.cfg").exists() else "'faust-assigner[ledger]'"
#: Seconds between two snapshots of the group; the longest wait for its last commits.
EVERY_S, COMMIT_S = 2.0, 5.0


@contextlib.asynccontextmanager
async def recorded(file: Path | None, bootstrap: str, group: str) -> AsyncIterator[None]:
    """Save a snapshot of ``group`` to ``file`` every 2 s; the last follows the block, when the lag is 0.

    ``file`` None saves no snapshots.

    The lines have the format of ``faust-assigner status --watch --json``.
    """
    if file is None:
        yield
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    ended = asyncio.Event()
    recording = asyncio.create_task(_record(file, bootstrap, group, ended))
    try:
        yield
    finally:
        ended.set()
        await recording


async def _record(file: Path, bootstrap: str, group: str, ended: asyncio.Event) -> None:
    where = Where(connection={"bootstrap_servers": bootstrap}, group_id=group, web_port=None)
    with file.open("wb") as lines:
        async with Looks(where, time.time) as looks:
            recorder = Recorder(looks, group, lines)
            while not ended.is_set():
                await recorder.look()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(EVERY_S):
                        await ended.wait()
            since = time.monotonic()
            while await recorder.look() != 0 and time.monotonic() - since < COMMIT_S:
                await asyncio.sleep(EVERY_S / 4)


@dataclass
class Recorder:
    """Write snapshots of a group, and the workers' recent rounds after each new round."""

    looks: Looks
    group: str
    lines: BinaryIO
    told_at: tuple[int, int] | None = None

    async def look(self) -> int | None:
        """Return the group's lag in records; None if the group does not exist yet or does not answer."""
        try:
            evidence = await self.looks.look()
            report = build(evidence)
            if not report.members:
                return None
            self.lines.write(dumps(report).encode() + b"\n")
            now = report.decision.generation if report.decision else -1, report.totals.answered
            if report.is_settled and now != self.told_at:
                told = Rounds(app=self.group, rounds=await self.looks.rounds(evidence))
                self.lines.write(encode_document(told) + b"\n")
                self.told_at = now
        except (FaustAssignerError, KafkaError):
            return None
        return report.totals.lag


def status_file(ledger: Path) -> Path:
    """Path of the snapshots: beside the ledger."""
    return ledger.parent / "demo-status.jsonl"


def program(name: str = "faust-assigner") -> str:
    """A command of the running Python's environment, as typed in this folder."""
    path = Path(sys.executable).with_name(name)
    with contextlib.suppress(ValueError):
        path = path.relative_to(Path.cwd())
    return shlex.quote(str(path))


def to_try(ledger: Path, partition: int) -> tuple[tuple[str, str], ...]:
    """Questions about the saved files, each with its command, for ``partition`` of orders."""
    saved = shlex.quote(str(status_file(ledger)))
    return (
        ("What did the workers do at the end?", f"{program()} status --from {saved}"),
        (
            f"Why did partition {partition} of orders move, and what would have avoided it?",
            f"{program()} why orders/{partition} --ledger {shlex.quote(str(ledger))}",
        ),
        (
            "All of it as a page in the browser; Ctrl-C ends the command:",
            f"{program()} ui --from {saved}",
        ),
    )


def further(ledger: Path) -> tuple[tuple[str, str], ...]:
    """Questions about the ledger alone; their commands need the extra ``ledger``."""
    named = shlex.quote(str(ledger))
    page, weights = (
        shlex.quote(str(ledger.parent / name)) for name in ("demo-history", "demo-weights.json")
    )
    return (
        (
            "Which tasks moved at each rebalance, as tables and one page?",
            f"{program()} history --no-spark --ledger {named} --out {page}",
        ),
        (
            "What would one more worker move?",
            f"{program()} simulate --no-spark --ledger {named} --group shop-ours --add 1",
        ),
        (
            "How do loads differ by partition, and what would weighted balance change?",
            f"{program()} weights --no-spark --ledger {named} --shadow --out {weights}",
        ),
    )

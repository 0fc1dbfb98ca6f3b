"""What the demo leaves on disk when its workers are gone: looks at the group; and commands that read it."""

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
from faust_assigner.wire.worker_status import Rounds, dumps, encode_document

#: What pip installs for the commands of :func:`further`: in a clone this very source.
EXTRA = "-e '.[ledger]'" if Path("setup.cfg").exists() else "'faust-assigner[ledger]'"
#: Seconds between two looks at the group; at the end it is given so long to commit all it processed.
EVERY_S, COMMIT_S = 2.0, 5.0


@contextlib.asynccontextmanager
async def recorded(file: Path | None, bootstrap: str, group: str) -> AsyncIterator[None]:
    """Save a look at ``group`` to ``file`` every 2 s, the last one when the block has ended and nothing lags.

    ``file`` None saves nothing.

    The lines are those of ``faust-assigner status --watch --json``.
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
                    await asyncio.wait_for(ended.wait(), EVERY_S)
            since = time.monotonic()
            while await recorder.look() != 0 and time.monotonic() - since < COMMIT_S:
                await asyncio.sleep(EVERY_S / 4)


@dataclass
class Recorder:
    """Writes looks at a group; and what its workers remember of the rounds whenever there was another one."""

    looks: Looks
    group: str
    lines: BinaryIO
    told_at: tuple[int, int] | None = None

    async def look(self) -> int | None:
        """The group's lag in records; None where the group is not there yet or does not answer."""
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
    """Where the looks are saved: beside the ledger."""
    return ledger.parent / "demo-status.jsonl"


def program(name: str = "faust-assigner") -> str:
    """A command of the running Python's environment, as it can be typed in this folder."""
    path = Path(sys.executable).with_name(name)
    with contextlib.suppress(ValueError):
        path = path.relative_to(Path.cwd())
    return shlex.quote(str(path))


def to_try(ledger: Path, partition: int) -> tuple[tuple[str, str], ...]:
    """Questions that what is left answers, each with its command; ``partition`` of orders has a story."""
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
    """Questions to the ledger alone, whose commands need the extra ``ledger``."""
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

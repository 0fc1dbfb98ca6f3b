"""SIGKILL of ``history`` at random steps; then its store is compared with a single full run.

    python -m tests.soak.history_kills --points 50 --spark 10 --seed 1

A ledger of two groups is split into visits; some lines arrive late, twice or before their decision.
Each visit runs in its own process. The process kills itself before a random step that changes the
folder: a created, renamed or removed file, counted by an audit hook. Then the visit is repeated,
and may be killed again. Lives with a growing ledger (``--stream``) alternate with lives whose
ledger loses each visit's lines after the next two visits. ``--spark`` adds kills of the whole
command with its JVM and its Python workers, at a random time of its writes. The run ends with 1 if

- after a kill the store equals neither its state before the visit nor the state after it;
- at a life's end the rows, the refused lines or the files differ from a run from nothing.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from tests.integration.spark.ledgers import ASSIGNMENT, Line, bad_lines, good, random_rows

VISITS = 4
#: Audit events that change a folder; ``open`` counts for written files.
CHANGES = frozenset({"os.rename", "os.remove", "os.rmdir", "os.mkdir"})
#: The number of visits kept in a ledger without ``--stream``.
KEPT = 2
#: The maximum seconds of a visit, with or without Spark.
DEADLINE_S = 300.0
#: The latest kill of a visit on Spark, in seconds after its first write.
LATEST_S = 1.5
#: A copy of this process starts without the imports.
_FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Life:
    """A folder filled in visits; ``parts`` are the lines of each visit."""

    home: Path
    parts: Sequence[Sequence[Line]]
    stream: bool

    @property
    def out(self) -> Path:
        """The folder of the history."""
        return self.home / "out"

    @property
    def ledger(self) -> Path:
        """The folder of the lines."""
        return self.home / "ledger"

    def add(self, visit: int) -> None:
        """Append a visit's lines, or add them as a file and remove the oldest file."""
        self.ledger.mkdir(parents=True, exist_ok=True)
        name = "all.jsonl" if self.stream else f"{visit:02}.jsonl"
        with (self.ledger / name).open("ab") as file:
            file.writelines(line.data + b"\n" for line in self.parts[visit])
        if not self.stream:
            (self.ledger / f"{visit - KEPT:02}.jsonl").unlink(missing_ok=True)


def lives(home: Path, draw: random.Random) -> Iterator[Life]:
    """Yield lives with and without ``--stream`` in turn."""
    number = 0
    while True:
        seed = draw.randrange(1 << 30)
        lines = [line for n in range(2) for line in random_rows(f"g{n}", seed + n, 5)]
        lines += [*bad_lines(), good({**ASSIGNMENT, "decision_id": "nowhere"})]
        # The lines are mostly in order; some arrive late, and some twice.
        late = [draw.expovariate(8) if draw.random() < 0.2 else 0.0 for _ in lines]
        places = sorted((n / len(lines) + late[n], n) for n in range(len(lines)))
        ordered = [lines[n] for _, n in places]
        ordered += draw.sample(ordered, len(ordered) // 20)
        size = -(-len(ordered) // VISITS)
        parts = [ordered[n : n + size] for n in range(0, len(ordered), size)]
        yield Life(home / str(number), parts, stream=number % 2 == 0)
        number += 1


def visit(ledger: str, out: str, stream: bool, fatal: int | None, told: Any = None) -> None:
    """Run once without Spark; die before step ``fatal``, or send the number of steps."""
    from faust_assigner.pipeline.history import plots
    from faust_assigner.pipeline.history.job import run_here
    from faust_assigner.pipeline.history.options import HistoryOptions

    plots.draw = lambda report: {}  # type: ignore[assignment]
    steps = 0

    def count(event: str, given: tuple[Any, ...]) -> None:
        nonlocal steps
        if not given or not str(given[0]).startswith(out):
            return
        is_write = event == "open" and isinstance(given[1], str) and "w" in given[1]
        if event in CHANGES or is_write:
            if steps == fatal:
                os.kill(os.getpid(), signal.SIGKILL)
            steps += 1

    sys.addaudithook(count)
    run_here(HistoryOptions((ledger,), out, stream=stream))
    if told is not None:
        told.send(steps)


def run_visit(life: Life, out: Path, fatal: int | None = None) -> int:
    """Run a visit in its own process; return its number of steps, 0 after a kill."""
    ours, theirs = _FORK.Pipe(duplex=False)
    process = _FORK.Process(
        target=visit, args=(str(life.ledger), str(out), life.stream, fatal, theirs)
    )
    process.start()
    theirs.close()
    process.join(DEADLINE_S)
    if process.is_alive():
        process.kill()
        raise click.ClickException(f"a visit did not end within {DEADLINE_S:.0f} s")
    if process.exitcode == -signal.SIGKILL and fatal is not None:
        return 0
    if process.exitcode:
        raise click.ClickException(f"a visit ended with {process.exitcode}")
    return int(ours.recv())


def kill_on_spark(life: Life, delay_s: float) -> bool:
    """Kill a visit on Spark ``delay_s`` after its first write; False if the visit ended before."""
    command = [sys.executable, "-m", "faust_assigner.cli", "history", "--master", "local[2]",
               "--ledger", str(life.ledger), "--out", str(life.out)]  # fmt: skip
    with open(life.home / "spark.log", "ab") as log:
        process = subprocess.Popen(
            [*command, "--stream"] if life.stream else command,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    mark, before = life.out / "_REPLACING", time.time_ns()
    deadline = time.monotonic() + DEADLINE_S
    # An earlier kill leaves a mark, which the visit writes again.
    while not (mark.exists() and mark.stat().st_mtime_ns > before) and process.poll() is None:
        if time.monotonic() > deadline:
            os.killpg(process.pid, signal.SIGKILL)
            raise click.ClickException(f"a visit on Spark did not write in {DEADLINE_S:.0f} s")
        time.sleep(0.01)
    time.sleep(delay_s)
    os.killpg(process.pid, signal.SIGKILL)  # the JVM and the Python workers too
    if (code := process.wait()) > 0:
        raise click.ClickException(f"a visit on Spark ended with {code}: {log.name}")
    return code != 0


def state(out: Path) -> tuple[dict[str, Any], int, list[Any]]:
    """Return the rows by table and day, the number of refused lines and their reasons."""
    from faust_assigner.pipeline.history.store import TABLES, Store

    store = Store(str(out))
    manifest = store.load()
    rows = {
        f"{table} {day}": store.read(table, day, entry).to_pylist()
        for table in TABLES
        for day, entry in manifest.days.items()
    }
    refused = [row["reason"] for row in store.read_refused(manifest).to_pylist()]
    return {k: v for k, v in rows.items() if v}, manifest.refused, sorted(refused)


def wrong_files(out: Path) -> list[str]:
    """Return files missing in the manifest and files missing on disk."""
    from faust_assigner.pipeline.history.store import PENDING, TABLES, Store

    manifest = Store(str(out)).load()
    named = {"manifest.json", "report.json", "report.html"}
    named |= {f"_index/{name}.parquet" for name in manifest.index.values()}
    named.add(f"quarantine/{manifest.quarantine}.parquet")
    used = {table for day in manifest.dates for table in manifest.days[day].rows}
    named |= {f"{table}/empty.parquet" for table in TABLES if table not in used}
    for day, entry in manifest.days.items():
        for table in entry.rows:
            place = f"{table}/dt={day}/{entry.token}.parquet"
            named.add(f"_pending/{table}-{entry.token}.parquet" if day == PENDING else place)
    files = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    return sorted(files ^ named)


class Differs(Exception):
    """The store differs from the expected store."""


def live(life: Life, draw: random.Random, counts: Counter[str], wanted: Counter[str]) -> None:
    """Play all visits of ``life`` with the kills of ``wanted``. Raises Differs."""
    before: Any = ({}, 0, [])
    for number in range(len(life.parts)):
        life.add(number)
        copy = life.home / f"after-{number}"
        if life.out.exists():
            shutil.copytree(life.out, copy)
        steps = run_visit(life, copy)
        after = state(copy)
        shutil.rmtree(copy)
        for _ in range(draw.choice((1, 1, 2, 3))):
            if wanted["spark"] > 0 and draw.random() < 0.25:
                kind = "spark" if kill_on_spark(life, draw.uniform(0, LATEST_S)) else "late"
            elif wanted["steps"] > 0:
                run_visit(life, life.out, draw.randrange(steps))
                kind = "steps"
            else:
                break
            counts[kind] += 1
            wanted[kind] -= 1
            now = state(life.out)
            counts["after" if now == after else "before"] += 1
            if now not in (before, after):
                raise Differs(f"visit {number}, killed: neither the state before nor after")
        run_visit(life, life.out)
        before = state(life.out)
        if before != after:
            raise Differs(f"visit {number}, repeated after a death, differs from one without it")
    _compare(life)


def _compare(life: Life) -> None:
    """Compare the store of ``life`` with a single run over all its lines."""
    whole = Life(life.home / "whole", [[line for part in life.parts for line in part]], life.stream)
    whole.add(0)
    run_visit(whole, whole.out)
    mine, model = state(life.out), state(whole.out)
    if mine[0] != model[0] or (life.stream and mine[1:] != model[1:]):
        days = sorted(k for k in {*mine[0], *model[0]} if mine[0].get(k) != model[0].get(k))
        raise Differs(f"the end differs from a run from nothing: {days or 'refused lines'}")
    if wrong := wrong_files(life.out):
        raise Differs(f"files that are too many or missing: {wrong[:5]}")


@click.command(help=__doc__)
@click.option("--points", default=50, show_default=True)
@click.option("--spark", default=0, show_default=True)
@click.option("--seed", type=int, default=None, help="Drawn and printed if it is not given.")
def main(points: int, spark: int, seed: int | None) -> None:
    """Play lives until all kills are made; print the counts."""
    seed = random.randrange(1 << 30) if seed is None else seed
    click.echo(f"seed {seed}: {points} kills at steps, {spark} on Spark")
    draw = random.Random(seed)
    wanted, counts = Counter(steps=points, spark=spark), Counter[str]()
    with tempfile.TemporaryDirectory(prefix="faust-assigner-kills-") as home:
        for life in lives(Path(home), draw):
            try:
                live(life, draw, counts, wanted)
            except Differs as error:
                raise click.ClickException(f"seed {seed}, life {life.home.name}: {error}") from None
            counts["lives"] += 1
            click.echo(f"life {life.home.name}: {dict(counts)}")
            shutil.rmtree(life.home)
            if wanted["steps"] <= 0 and wanted["spark"] <= 0:
                break
    click.echo(f"{counts['steps'] + counts['spark']} kills, 0 differences")


if __name__ == "__main__":
    main()

"""Add a year of history day by day: ``python -m benchmarks.history_year [--days 365] [--lines 27000]``.

Writes the ledger of a day (30 workers, 480 partitions, drawn from ``--seed``), merges it without Spark, and
deletes it: in the end the ledger has no day but the last. A copy of the store remains from day 10. Then five
further days are added to this copy and to a copy of the whole store, in turn, so load on the machine
affects both. Prints the medians: processor seconds and wall seconds. The other days are merged without
pictures, which do not affect the store. ``--batch N`` merges N of them in a run, with the same rows in the
same number of files. ``--compare`` compares the store with a single run over all days; that run needs memory
for all lines. With ``--folder`` the stores remain, and the next call continues after the last complete day.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from faust_assigner.ledger import encode
from faust_assigner.pipeline.history import plots
from faust_assigner.pipeline.history.job import run_here
from faust_assigner.pipeline.history.options import HistoryOptions
from faust_assigner.pipeline.history.store import PENDING, TABLES, Store

START = datetime(2026, 1, 1, tzinfo=UTC)
MEMBERS = [f"faust-0.15.3-{number:036d}" for number in range(30)]
PARTITIONS = 480
#: The day compared with the last day, and the number of further days for the medians.
EARLY, FURTHER = 10, 5


def day_of(number: int, lines: int, draw: random.Random) -> Iterator[bytes]:
    """Yield about ``lines`` lines of day ``number``: decisions with placements, recoveries, samples."""
    day = START + timedelta(days=number)
    decisions = max(1, lines // 550)
    for index in range(decisions):
        at = (day + timedelta(seconds=86_400 / decisions * index)).timestamp()
        name = f"{number}-{index}"
        yield encode("decision", _decision(name, at, number, index))
        yield from (encode("assignment", row) for row in _placements(name, draw))
        for _ in range(10):
            yield encode("recovery", _recovery(name, at, draw))
        for partition in range(60):
            yield encode("partition_sample", _sample(at, partition, draw))


def _decision(name: str, at: float, number: int, index: int) -> dict[str, object]:
    members = [{"member_id": m, "rack": None, "capacity": 1.0, "epoch": number} for m in MEMBERS]
    config = {"deploy": f"v{number // 7}"}
    head = {"group_id": "shop", "decision_id": name, "ts": at, "generation": index}
    return {**head, "trigger": "join", "policy": "faust-assigner", "config": config,
            "members": members, "solve_ms": 1.0}  # fmt: skip


def _placements(name: str, draw: random.Random) -> Iterator[dict[str, object]]:
    for partition in range(PARTITIONS):
        moved = draw.random() < 0.03
        owner, before = MEMBERS[partition % 30], draw.choice(MEMBERS)
        yield {"group_id": "shop", "decision_id": name, "topic": "orders", "partition": partition,
               "role": "active", "member_id": owner, "prev_member_id": before if moved else owner,
               "moved": moved, "standby_hit": moved, "cold": False}  # fmt: skip


def _recovery(name: str, at: float, draw: random.Random) -> dict[str, object]:
    return {"group_id": "shop", "decision_id": name, "topic": "orders",
            "partition": draw.randrange(PARTITIONS), "member_id": MEMBERS[0], "source": "standby",
            "started": at, "ended": at + draw.random(), "start_offset": 0, "end_offset": 100,
            "records": 100, "bytes": 10_000}  # fmt: skip


def _sample(at: float, partition: int, draw: random.Random) -> dict[str, object]:
    return {"group_id": "shop", "ts": at + partition, "topic": "orders", "partition": partition,
            "end_offset": 100, "committed_offset": 100, "bytes_in": 1000,
            "records_in": draw.randrange(100), "cpu_ms": 1.0, "state_bytes": 0}  # fmt: skip


def write_day(folder: Path, number: int, lines: int, seed: int) -> int:
    """Write the ledger of a day; return the number of its lines."""
    found = list(day_of(number, lines, random.Random(seed * 1_000 + number)))
    (folder / f"{number:03}.jsonl").write_bytes(b"".join(found))
    return len(found)


def main() -> int:
    """Add the days, print the costs, compare the stores; return 0 unless they differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--lines", type=int, default=27_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--batch", type=int, default=1, help="unmeasured days for each run")
    parser.add_argument("--folder", help="continue in this folder, and leave the store there")
    given = parser.parse_args()
    if given.days < EARLY:
        parser.error(f"--days is at least {EARLY}")
    print(f"{given.days} days of {given.lines:,} lines, seed {given.seed}", flush=True)
    with _home(given.folder) as home:
        _add_days(home, given)
        costs = _further_days(home, given)
        for title, days in costs.items():
            spent, wall = (statistics.median(each) for each in zip(*days, strict=True))
            print(f"{title}: {spent:.2f} processor s, {wall:.2f} wall s", flush=True)
        early, late = (statistics.median(spent for spent, _ in days) for days in costs.values())
        size = sum(path.stat().st_size for path in (home / "out").rglob("*") if path.is_file())
        print(
            f"last / day {EARLY}: {late / early:.2f}; the store has {size / 1e6:.0f} MB", flush=True
        )
        if given.compare:
            began = time.monotonic()
            wrong = _differences(f"{home}/out", _whole(home, given))
            print(f"equal to one run over all days: {not wrong}, {time.monotonic() - began:.0f} s")
            return int(bool(wrong))
    return 0


def _home(folder: str | None) -> contextlib.AbstractContextManager[Path]:
    if folder is None:
        return _temporary()
    return contextlib.nullcontext(Path(folder))


@contextlib.contextmanager
def _temporary() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="faust-assigner-year-") as folder:
        yield Path(folder)


def _add_days(home: Path, given: argparse.Namespace) -> None:
    """Merge the days into ``home/out``, copy the store at day EARLY; ``home/days`` holds the day count."""
    ledger, count, draw = home / "ledger", home / "days", plots.draw
    ledger.mkdir(parents=True, exist_ok=True)
    done = int(count.read_text()) if count.exists() else 0
    plots.draw = lambda report: {}
    while done < given.days:
        end = min(done + given.batch, EARLY if done < EARLY else given.days)
        for number in range(done, end):
            write_day(ledger, number, given.lines, given.seed)
        run_here(HistoryOptions((str(ledger),), f"{home}/out"))
        for number in range(done, end):
            (ledger / f"{number:03}.jsonl").unlink()
        done = end
        if done == EARLY:
            shutil.copytree(home / "out", home / "early", dirs_exist_ok=True)
        count.write_text(str(done))
    plots.draw = draw


def _further_days(home: Path, given: argparse.Namespace) -> dict[str, list[tuple[float, float]]]:
    """Return (processor s, wall s) of each further day, for the early and for the whole store."""
    late = home / "late"
    shutil.rmtree(late, ignore_errors=True)
    shutil.copytree(home / "out", late)
    costs: dict[str, list[tuple[float, float]]] = {f"day {EARLY}": [], "last day": []}
    for number in range(given.days, given.days + FURTHER + 1):
        write_day(home / "ledger", number, given.lines, given.seed)
        for spent, store in zip(costs.values(), (home / "early", late), strict=True):
            began, before = time.monotonic(), time.process_time()
            run_here(HistoryOptions((str(home / "ledger"),), str(store)))
            spent.append((time.process_time() - before, time.monotonic() - began))
        (home / "ledger" / f"{number:03}.jsonl").unlink()
    return {title: spent[1:] for title, spent in costs.items()}  # the first day includes imports


def _whole(home: Path, given: argparse.Namespace) -> str:
    """Build the store in a single run over the lines of all days."""
    ledger, out = home / "ledger", f"{home}/whole"
    for number in range(given.days):
        write_day(ledger, number, given.lines, given.seed)
    run_here(HistoryOptions((str(ledger),), out))
    return out


def _differences(one: str, other: str) -> list[str]:
    """List the tables and days with differing rows; memory holds one day of one table."""
    stores = Store(one), Store(other)
    days, others = (store.load().days for store in stores)
    assert PENDING not in days
    return [
        f"{table} {day}"
        for day in sorted({*days, *others})
        for table in TABLES
        if not stores[0]
        .read(table, day, days.get(day))
        .equals(stores[1].read(table, day, others.get(day)))
    ]


if __name__ == "__main__":
    sys.exit(main())

"""A year of history, added day by day: ``python -m benchmarks.history_year [--days 365] [--lines 27000]``.

Writes the ledger of one day at a time (30 workers, 480 partitions, drawn from ``--seed``), merges it without
Spark, and removes it again: at the end every day but the last is pruned from the ledger. Prints the cost of
day 10 and of the last day, medians of five days each: processor seconds, which hardly depend on other
processes, and wall seconds. The other days are merged without pictures, which the store does not depend on.
``--compare`` compares the store in the end with that of one run over all days, which needs the memory for all
lines. ``--batch N`` merges N of the unmeasured days in one run, which leaves the same rows in the same number
of files. With ``--folder`` the store and the costs stay there, and the next call continues after the last
complete day.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from faust_assigner.ledger import encode
from faust_assigner.pipeline.history import plots
from faust_assigner.pipeline.history.job import HistoryOptions, run_here
from faust_assigner.pipeline.history.store import PENDING, TABLES, Store

START = datetime(2026, 1, 1, tzinfo=UTC)
MEMBERS = [f"faust-0.15.3-{number:036d}" for number in range(30)]
PARTITIONS = 480
#: Days around a measured day, whose median counts.
AROUND = 5


def day_of(number: int, lines: int, draw: random.Random) -> Iterator[bytes]:
    """About ``lines`` lines of day ``number``: decisions with placements, recoveries, samples."""
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
    """The ledger of one day; how many lines it has."""
    found = list(day_of(number, lines, random.Random(seed * 1_000 + number)))
    (folder / f"{number:03}.jsonl").write_bytes(b"".join(found))
    return len(found)


def main() -> int:
    """Add the days, print the costs, compare; 0 unless the stores differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--lines", type=int, default=27_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--batch", type=int, default=1, help="unmeasured days for each run")
    parser.add_argument("--folder", help="continue in this folder, and leave the store there")
    given = parser.parse_args()
    print(f"{given.days} days of {given.lines:,} lines, seed {given.seed}", flush=True)
    with _home(given.folder) as home:
        costs = _add_days(home, given)
        early, late = costs[8 : 8 + AROUND], costs[-AROUND:]
        for title, days in (("day 10", early), ("last day", late)):
            spent, wall = (statistics.median(each) for each in zip(*days, strict=True))
            print(f"{title}: {spent:.2f} processor s, {wall:.2f} wall s", flush=True)
        ratio = statistics.median(c for c, _ in late) / statistics.median(c for c, _ in early)
        size = sum(path.stat().st_size for path in (home / "out").rglob("*") if path.is_file())
        print(f"last / day 10: {ratio:.2f}; the store has {size / 1e6:.0f} MB", flush=True)
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


def _add_days(home: Path, given: argparse.Namespace) -> list[tuple[float, float]]:
    """(processor seconds, wall seconds) of each day; ``home/costs.jsonl`` keeps them."""
    ledger, kept, draw = home / "ledger", home / "costs.jsonl", plots.draw
    ledger.mkdir(parents=True, exist_ok=True)
    kept.touch()
    costs = [(spent, wall) for spent, wall in map(json.loads, kept.read_text().splitlines())]
    options = HistoryOptions((str(ledger),), f"{home}/out")
    while len(costs) < given.days:
        days = _next_days(len(costs), given)
        for number in days:
            write_day(ledger, number, given.lines, given.seed)
        plots.draw = draw if _is_measured(days[0], given) else lambda report: {}
        wall, spent = time.monotonic(), time.process_time()
        run_here(options)
        cost = (time.process_time() - spent, time.monotonic() - wall)
        costs += [(cost[0] / len(days), cost[1] / len(days))] * len(days)
        kept.write_text("".join(f"{json.dumps(each)}\n" for each in costs))
        for number in days:
            (ledger / f"{number:03}.jsonl").unlink()
    plots.draw = draw
    return costs


def _is_measured(day: int, given: argparse.Namespace) -> bool:
    return day in range(8, 8 + AROUND) or day >= given.days - AROUND


def _next_days(first: int, given: argparse.Namespace) -> list[int]:
    """The days of one run: a measured day alone, unmeasured days in a batch."""
    days = [first]
    while not _is_measured(days[0], given) and len(days) < given.batch:
        if days[-1] + 1 >= given.days or _is_measured(days[-1] + 1, given):
            break
        days.append(days[-1] + 1)
    return days


def _whole(home: Path, given: argparse.Namespace) -> str:
    """The store of one run over the lines of all days."""
    ledger, out = home / "ledger", f"{home}/whole"
    for number in range(given.days):
        write_day(ledger, number, given.lines, given.seed)
    run_here(HistoryOptions((str(ledger),), out))
    return out


def _differences(one: str, other: str) -> list[str]:
    """The tables and days whose rows differ between two stores; one day of one table is in memory."""
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

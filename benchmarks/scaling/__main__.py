"""Play a day of load under KEDA's Kafka scaler (lag only) and under ours: moves, worker-hours, lag.

    python -m benchmarks.scaling [--seeds N] [--why]

Time is virtual; the moves are the planner's own. Lag-only runs with several thresholds, in seconds of a
worker's work, and with two stabilization windows for scale-down. The last table has ours over lag-only:
a figure below 1 means fewer moves and fewer worker-hours.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from statistics import median

from benchmarks.scaling.arms import DOWN_S, LagOnly, Metric, Ours, Outcome, live
from benchmarks.scaling.day import Costs, Day
from faust_assigner.scaler.settings import Settings

#: Lag-only: (threshold in seconds of a worker's work, Kubernetes' scale-down window in seconds). The
#: window's default is 300 s; ours has 900 s, so lag-only with 900 s removes the window's advantage.
RIVALS = (
    *((seconds, 300.0) for seconds in (0.5, 1.0, 2.0, 5.0, 20.0, 60.0)),
    *((seconds, 900.0) for seconds in (0.5, 5.0, 60.0)),
)
HEAD = (
    "seed  arm                     moves   cold  changes  worker-h   lag s: median     p95      max"
)


def line(label: str, arm: str, found: Outcome) -> str:
    """Format a row of the table."""
    return (
        f"{label:>5}  {arm:<22}{found.moves:>7}{found.cold_moves:>7}{found.changes:>9}"
        f"{found.worker_hours:>10.1f}{found.lag_median_s:>17.1f}{found.lag_p95_s:>8.1f}"
        f"{found.lag_max_s:>9.1f}"
    )


def middle(found: Sequence[Outcome]) -> Outcome:
    """Return the median of each column."""
    return Outcome(*(median(column) for column in zip(*found, strict=True)))  # type: ignore[arg-type]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument(
        "--why", action="store_true", help="Print each change of ours with its reasons."
    )
    said = parser.parse_args(arguments)
    costs, begin = Costs(), time.perf_counter()
    print(
        f"{said.hours:g} h, {costs.partitions} tasks of {costs.records:,.0f} records, "
        f"{costs.standbys} standby, {costs.worker_rate:,.0f} records/s a worker, "
        f"restores {costs.replay_records_per_s:,.0f} records/s\n\n{HEAD}"
    )
    rows: dict[str, list[Outcome]] = {}
    for seed in range(1, said.seeds + 1):
        day = Day.drawn(seed, hours=said.hours)
        ours, spare = Ours(Settings()), Ours(Settings(spare=1))
        arms: dict[str, tuple[Metric, float]] = {
            f"lag-only {s:g} s, {window:g} s": (LagOnly(s * costs.worker_rate), window)
            for s, window in RIVALS
        }
        for name, (metric, window) in {
            **arms,
            "ours": (ours, DOWN_S),
            "ours, spare=1": (spare, DOWN_S),
        }.items():
            rows.setdefault(name, []).append(live(day, metric, costs, down_s=window))
            print(line(str(seed), name, rows[name][-1]), flush=True)
        if said.why:
            print(*(f"       {one}" for one in ours.reasons), sep="\n")
    print(f"\nmedians of {said.seeds} seeds\n{HEAD}")
    for name, found in rows.items():
        print(line("", name, middle(found)))
    print("\nours against lag-only, medians over the seeds")
    print("       rival                  moves  worker-h  p95 lag less by s")
    for name in (name for name in rows if name.startswith("lag")):
        pairs = list(zip(rows["ours"], rows[name], strict=True))
        moves = median(a.moves / b.moves for a, b in pairs)
        hours = median(a.worker_hours / b.worker_hours for a, b in pairs)
        less = median(b.lag_p95_s - a.lag_p95_s for a, b in pairs)
        print(f"       {name:<22}{moves:>6.2f}{hours:>10.2f}{less:>19.1f}")
    print(f"\n{time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    main()

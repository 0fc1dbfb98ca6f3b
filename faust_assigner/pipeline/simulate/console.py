"""The output of ``simulate`` and ``weights``: distributions, the settings table, the learned weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from faust_assigner.pipeline.console import show
from faust_assigner.pipeline.simulate.events import EventRow
from faust_assigner.pipeline.simulate.run import REPLAYED
from faust_assigner.pipeline.simulate.settings import ALL_FLEETS, STOPPED

#: The most recorded rebalances that are printed; report.json holds all.
EVENTS_PRINTED = 20

_METRICS = (
    ("moved", "tasks moved"),
    ("cold_moves", "of them cold"),
    ("unavailable_s_per_partition", "s stopped/partition"),
    ("worst_gap_s", "worst gap s"),
    ("worst_load", "worst load"),
)


def show_simulation(report: Mapping[str, Any], out: str) -> None:
    """Print each policy's p50/p90/p99 over all fleets, then the recommended settings."""
    options = report["options"]
    everywhere = [found for found in report["sim_summary"] if found["state"] == ALL_FLEETS]
    show(
        f"{options['scenarios']} scenarios, seed {options['seed']}; p50 / p90 / p99",
        ("policy", "standbys", *(title for _, title in _METRICS)),
        [
            (
                found["policy"],
                str(found["standbys"]),
                *(_spread(found, metric) for metric, _ in _METRICS),
            )
            for found in everywhere
        ],
    )
    print()
    _show_settings(report["sim_settings"])
    for told in report["advice"]:
        old, new = told["recorded"], told["recommended"]
        print(
            f"\nGroup {told['group_id']}: {old['policy']}, standbys {old['standbys']} -> {new['policy']}, "
            f"standbys {new['standbys']}, over {told['weeks']} whole weeks "
            f"{_within(told['difference_s'], told['interval'])} s stopped per partition and week: "
            f"{told['verdict']}"
        )
    if report["events"]:
        print()
        _show_events(report["events"])
    print(f"\nWritten to {out}: sim_result, report.json")


def _show_settings(lines: Sequence[Mapping[str, Any]]) -> None:
    """Print the recommended settings of each class of fleet, beside the best other policy."""
    show(
        "Settings: the fewest standbys and switches within 10% of the calmest and the evenest; p90 and its "
        "95% interval, in other scenarios than those they were chosen on; beside it the best other policy "
        "under the same conditions, and what the settings predict of the recorded time / what was recorded",
        (
            "state",
            "racks",
            "scenarios",
            "policy",
            "standbys",
            "s stopped/partition",
            "worst load",
            "other policy",
            "its s stopped/partition",
            "less it, paired",
            "verdict",
            "rebalances",
            "moved",
            "cold",
        ),
        [
            (
                line["state"],
                line["racks"],
                str(line["scenarios"]),
                line["policy"],
                str(line["standbys"]),
                _within(line[STOPPED], line["intervals"][STOPPED]),
                _within(line["worst_load_p90"], line["intervals"]["worst_load_p90"], digits=2),
                line["instead_of"],
                _within(line[f"its_{STOPPED}"], line["its_interval"]),
                _within(line["difference_s"], line["difference_interval"]),
                line["verdict"],
                *(_predicted(line.get("replay"), name) for name in REPLAYED),
            )
            for line in lines
        ],
    )


def _show_events(events: Sequence[EventRow]) -> None:
    """Print predicted / recorded figures of the recorded rebalances: those that differ most."""
    ordered = sorted(events, key=lambda row: (-_missed(row), row["ts"]))[:EVENTS_PRINTED]
    exact = sum(_missed(row) == 0 for row in events)
    show(
        f"The recorded rebalances again, predicted / recorded: {exact} of {len(events)} with equal moves; "
        f"{'the largest differences' if len(events) > len(ordered) else 'all'}, with "
        f"{events[0]['policy']}, standbys {events[0]['standbys']}",
        ("time", "group", "trigger", "rebalances", "moved", "cold"),
        [
            (
                row["ts"][:19].replace("T", " "),
                row["group_id"],
                row["trigger"],
                *(f"{row['predicted'][name]} / {row['recorded'][name]}" for name in REPLAYED),
            )
            for row in sorted(ordered, key=lambda row: (row["group_id"], row["ts"]))
        ],
    )


def _missed(row: EventRow) -> int:
    """The difference between predicted and recorded moves, warm and cold."""
    return sum(
        abs(row["predicted"][name] - row["recorded"][name]) for name in ("moved", "cold_moves")
    )


def show_what_if(report: Mapping[str, Any]) -> None:
    """Print the effect of one change with each number of standbys, and the load per rack afterwards."""
    rows = report["what_if"]
    show(
        f"Group {report['group_id']}, {report['members']} members, then {rows[0]['members']}",
        (
            "standbys",
            "tasks moved",
            "warm",
            "cold",
            "MB to restore",
            "s stopped at most",
            "s until restored",
            "peak lag",
            "idle members",
            "pairs in one rack",
        ),
        [
            (
                str(row["standbys"]),
                str(row["moves"]),
                str(row["warm"]),
                str(row["cold"]),
                f"{row['bytes_to_restore'] / 1e6:.1f}",
                f"{row['stopped_s']:.1f}",
                f"{row['restored_s']:.1f}",
                str(row["peak_lag"]),
                str(row["idle_members"]),
                str(row["colocated_pairs"]),
            )
            for row in rows
        ],
    )
    print()
    show(
        "Racks: actives / standbys",
        ("standbys", *rows[0]["actives_per_rack"]),
        [
            (
                str(row["standbys"]),
                *(
                    f"{row['actives_per_rack'][rack]} / {row['standbys_per_rack'][rack]}"
                    for rack in row["actives_per_rack"]
                ),
            )
            for row in rows
        ],
    )


def show_weights(report: Mapping[str, Any]) -> None:
    """Print the learned weights per group, and their effect on the newest decisions."""
    show(
        f"Weights version {report['version']}, by {report['by']}",
        (
            "group",
            "partitions",
            "samples",
            "lowest",
            "highest",
            "heaviest partition",
            "confidence median",
            "lowest",
            "oldest",
            "drift",
        ),
        [
            (
                group["group_id"],
                str(group["partitions"]),
                str(group["samples"]),
                f"{group['lowest']:.2f}",
                f"{group['highest']:.2f}",
                group["heaviest_partition"],
                f"{group['confidence_median']:.0%}",
                f"{group['confidence_lowest']:.0%}",
                f"{group['oldest_s'] / 3600:.1f} h",
                "-" if group["drift"] is None else f"{group['drift']:.0%}",
            )
            for group in report["groups"]
        ],
    )
    if report["shadow"]:
        print()
        _show_shadow(report["shadow"])
    if report["quarantined"]:
        print(f"\n{report['quarantined']} lines refused; `faust-assigner history` says why")
    if report["stale_samples"]:
        print(f"\nThe newest sample is from {report['newest_sample']}: are samples still written?")
    targets = [
        target
        for target in (report["out"], report["topic"] and f"topic {report['topic']}")
        if target
    ]
    print(f"\nWritten to {' and '.join(targets)}")


def _show_shadow(scores: Sequence[Mapping[str, Any]]) -> None:
    """Print how the newest decisions would have been with these weights."""
    show(
        "In shadow: the newest decisions again, counted and weighted (loads are relative to the mean)",
        (
            "group",
            "decision",
            "heaviest now",
            "counted",
            "weighted",
            "tasks moved counted",
            "tasks moved weighted",
            "weighted / counted",
        ),
        [
            (
                found["group_id"],
                found["ts"][:16],
                f"{found['before']:.2f}",
                f"{found['counted']:.2f}",
                f"{found['weighted']:.2f}",
                str(found["counted_moves"]),
                str(found["weighted_moves"]),
                f"{found['ratio']:.2f}",
            )
            for found in scores
        ],
    )


def _spread(found: Mapping[str, Any], metric: str) -> str:
    digits = 2 if metric == "worst_load" else 0 if metric in ("moved", "cold_moves") else 1
    return " / ".join(
        f"{found[f'{metric}_p{percentile}']:.{digits}f}" for percentile in (50, 90, 99)
    )


def _within(value: float | None, interval: Sequence[float] | None, *, digits: int = 1) -> str:
    """A value with its interval: ``12.3 (11.0..14.1)``."""
    if value is None:
        return ""
    told = f"{value:.{digits}f}"
    return (
        told if interval is None else f"{told} ({interval[0]:.{digits}f}..{interval[1]:.{digits}f})"
    )


def _predicted(replay: Mapping[str, Mapping[str, int]] | None, name: str) -> str:
    """``predicted / recorded``; empty without a replayed ledger."""
    return f"{replay['predicted'][name]} / {replay['recorded'][name]}" if replay else ""

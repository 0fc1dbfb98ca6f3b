"""The output of the pipeline's commands: tables on a terminal, plain lines in a file or a pipe."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeAlias

from rich.console import Console
from rich.table import Table

from faust_assigner.pipeline.history.answers import summary

if TYPE_CHECKING:
    from faust_assigner.pipeline.doctor import Finding
    from faust_assigner.pipeline.history.report import Report
    from faust_assigner.snapshots.manifest import Manifest
    from faust_assigner.snapshots.retention import Removal
    from faust_assigner.snapshots.verification import Verdict

Lines = Sequence[Sequence[str]]
#: For each column: its heading, and a function that returns the text of its cell in a row.
Columns: TypeAlias = Sequence[tuple[str, Callable[[Any], str]]]
#: The maximum number of rows of a table that are printed; the Parquet folders hold all rows.
ROWS_PRINTED = 20


def show(title: str, heads: Sequence[str], rows: Lines, console: Console | None = None) -> None:
    """Print a titled table: boxed on a terminal, aligned columns in a file or a pipe.

    By default rich's markup is off, because names in a ledger may contain brackets.
    """
    console = console or Console(highlight=False, markup=False, emoji=False)
    if console.is_terminal:
        table = Table(*heads, title=title, title_justify="left")
        for row in rows:
            table.add_row(*row)
        console.print(table)
        return
    widths = [max(len(row[i]) for row in (heads, *rows)) for i in range(len(heads))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (heads, *rows)
    ]
    print("\n".join([title, *lines]))


def show_rows(title: str, columns: Columns, rows: Iterable[Any]) -> None:
    """Print a titled table of ``rows``, with one cell per column."""
    cells = [[text(row) for _, text in columns] for row in rows]
    show(title, [head for head, _ in columns], cells)


def cell(name: str, form: str = "") -> Callable[[Mapping[str, Any]], str]:
    """Return a function that formats the field ``name`` of a row with ``form``."""
    return lambda row: format(row[name], form)


def show_history(report: Report, out: str) -> None:
    """Print the headline, the small tables, the first refused lines, and the folder of the results."""
    for sentence in summary(report.tables, report.today):
        print(sentence)
    print()
    show("History", ("what", "value"), report.headline())
    for name, columns in _PRINTED.items():
        rows = [[_text(row[column]) for column in columns] for row in report.tables[name]]
        if rows:
            print()
            show(
                _TITLES.get(name, name.capitalize()) + _cut(len(rows)),
                columns,
                rows[-ROWS_PRINTED:],
            )
    refused = report.tables["quarantine"]
    if refused:
        print()
        lines = [(f"{row['file']}:{row['line']}", row["reason"]) for row in refused[:ROWS_PRINTED]]
        show(f"Refused lines ({report.refused:,} in all)", ("where", "why"), lines)
    print(f"\nWritten to {out}: report.html, report.json, and a Parquet folder for each table")


_TITLES = {"movement": "Movement, in topic partitions", "balance": "Balance, in topic partitions"}
_PRINTED = {
    "movement": (
        "group_id",
        "dt",
        "policy",
        "decisions",
        "assigned",
        "moved",
        "cold_moves",
        "standby_hits",
    ),
    "balance": ("group_id", "dt", "policy", "max_spread", "mean_spread", "idle_members"),
    "recovery": ("group_id", "dt", "source", "recoveries", "records", "p50_s", "p90_s", "max_s"),
}


def _cut(rows: int) -> str:
    return "" if rows <= ROWS_PRINTED else f" (the last {ROWS_PRINTED} of {rows} rows)"


def _text(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def show_findings(findings: Sequence[Finding]) -> None:
    """Print the doctor's findings, each with its fix."""
    show(
        "Spark on this machine",
        ("check", "status", "found"),
        [(finding.code, finding.status, finding.found) for finding in findings],
    )
    fixes = [(finding.code, finding.fix) for finding in findings if finding.fix]
    if fixes:
        print()
        show("What to do", ("check", "fix"), fixes)


def show_manifests(manifests: Sequence[Manifest], to: str, *, as_json: bool = False) -> None:
    """Print the written snapshots, one row per partition."""
    if as_json:
        print(json.dumps([asdict(manifest) for manifest in manifests], indent=1))
        return
    rows = [
        (
            str(each.partition),
            str(each.next_offset),
            f"{each.keys:,}",
            f"{each.bytes:,}",
            f"{each.new_bytes or 0:,}",
            str(len(each.layers or (1,))),
            each.snapshot_id,
        )
        for each in manifests
    ]
    show(
        f"Snapshots of {manifests[0].topic}" if manifests else "No partitions",
        ("partition", "next_offset", "keys", "bytes", "new_bytes", "layers", "snapshot_id"),
        rows,
    )
    print(f"\nWritten to {to}")


def show_verdicts(verdicts: Sequence[Verdict], *, as_json: bool = False) -> None:
    """Print the result of ``snapshot verify``; an unfinished folder is listed but is not a fault."""
    if as_json:
        print(
            json.dumps(
                [
                    {
                        "snapshot": each.folder,
                        "visible": each.manifest is not None,
                        "problem": each.problem,
                    }
                    for each in verdicts
                ],
                indent=1,
            )
        )
        return
    rows = [
        (
            each.folder,
            "ok" if each.problem is None else "BROKEN" if each.manifest else "unfinished",
            each.problem or "",
        )
        for each in verdicts
    ]
    show("Snapshots", ("snapshot", "state", "why"), rows)


def show_removals(removals: Sequence[Removal], *, dry_run: bool, as_json: bool = False) -> None:
    """Print the files that ``snapshot gc`` removed or, in a dry run, would remove."""
    if as_json:
        print(json.dumps([asdict(removal) for removal in removals], indent=1))
        return
    rows = [(each.path, f"{each.size:,}", each.reason) for each in removals]
    show(f"{'Would remove' if dry_run else 'Removed'} {len(rows)}", ("path", "bytes", "why"), rows)


def show_weights(report: Mapping[str, Any]) -> None:
    """Print the learned weights per group, and the newest decisions recomputed with these weights."""
    show_rows(f"Weights version {report['version']}, by {report['by']}", _WEIGHTS, report["groups"])
    if report["shadow"]:
        print()
        show_rows(
            "Shadow: the newest decisions planned without and with weights (loads relative to the mean)",
            _SHADOW,
            report["shadow"],
        )
    if report["quarantined"]:
        print(f"\n{report['quarantined']} lines refused; `faust-assigner history` says why")
    if report["stale_samples"]:
        print(f"\nThe newest sample is from {report['newest_sample']}: are samples still written?")
    targets = (report["out"], report["topic"] and f"topic {report['topic']}")
    print(f"\nWritten to {' and '.join(target for target in targets if target)}")


_WEIGHTS: Columns = (
    ("group", cell("group_id")),
    ("partitions", cell("partitions")),
    ("samples", cell("samples")),
    ("lowest", cell("lowest", ".2f")),
    ("highest", cell("highest", ".2f")),
    ("heaviest partition", cell("heaviest_partition")),
    ("confidence median", cell("confidence_median", ".0%")),
    ("lowest", cell("confidence_lowest", ".0%")),
    ("oldest", lambda group: f"{group['oldest_s'] / 3600:.1f} h"),
    ("drift", lambda group: "-" if group["drift"] is None else f"{group['drift']:.0%}"),
)
_SHADOW: Columns = (
    ("group", cell("group_id")),
    ("decision", lambda found: str(found["ts"][:16])),
    ("heaviest now", cell("before", ".2f")),
    ("counted", cell("counted", ".2f")),
    ("weighted", cell("weighted", ".2f")),
    ("tasks moved counted", cell("counted_moves")),
    ("tasks moved weighted", cell("weighted_moves")),
    ("weighted / counted", cell("ratio", ".2f")),
)

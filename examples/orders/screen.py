"""The demo's output: a live table, plain lines outside a terminal, and the final comparison."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from examples.orders.fleet import Worker
from examples.orders.score import EventScore

if TYPE_CHECKING:
    from examples.orders.demo import Result


# Each is a single line: the terminal wraps it at its own width.
INTRODUCTION = (
    "A Faust app joins orders with customers and keeps one total per customer in a table. The same events "
    "are played under each assignor: three workers start, a fourth joins, one is killed and restarted at "
    "once, one is killed and restarted later. Watch how long partitions stand still, and whether orders "
    "are lost."
)
EACH_EVENT = (
    "After each event: the partitions of each worker; how many changed their owner (the fewest possible); "
    "how many of these were cold; the longest time without an order, median/longest over partitions."
)
LEGEND = (
    "How to read it:",
    "- cold: the new owner has neither a copy nor files of the partition's tables. It replays the changelog "
    "while the partition stands still. Ours lets a copy catch up first, and the old owner goes on meanwhile.",
    "- moved: partitions with a new owner. After a SIGKILL they wait for the session, in any assignor.",
    "- kept: partitions with the same owner, among them those of a worker that restarts within its session.",
    "- without an event: the pauses of this machine. A busy machine makes all pauses longer.",
    "- repeated: orders that were processed twice (at least once) and that the table recognised.",
    "- lost: orders that never reached the table.",
    "- final tables: all rows, compared with those of a plain Python program that read the same orders.",
)


class Screen:
    """A live table of the owners; on a pipe, a line for each event instead."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.live.stop()

    def show(self, event: str, workers: Sequence[Worker], elapsed_s: float) -> None:
        """Redraw the table."""
        if not self.console.is_terminal:
            return
        table = Table(
            "worker", "actives", "standbys", "orders done", title=f"{event}  {elapsed_s:.1f} s"
        )
        for worker in workers:
            table.add_row(
                worker.name,
                spelled(worker.actives),
                spelled(worker.standbys),
                str(len(worker.done["orders"])),
            )
        self.live.update(table, refresh=True)

    def scored(self, event: EventScore) -> None:
        """Print the scores of an event."""
        loads = "/".join(map(str, event.loads))
        self.console.print(f"  {event.event}", highlight=False)
        self.console.print(
            f"    loads {loads}, moves {event.moves} (minimum {event.minimum_moves}), cold {event.cold}; "
            f"stood still, median/longest: {spelled_gaps(event)}",
            highlight=False,
            soft_wrap=True,
        )


def spelled(partitions: frozenset[int] | None) -> str:
    """Format partition numbers for a table cell."""
    return "..." if partitions is None else " ".join(map(str, sorted(partitions))) or "-"


def spelled_gaps(event: EventScore) -> str:
    """Format the pauses of moved partitions, if any moved, and of kept partitions."""
    moved = f"moved {pause(event.moved_gaps_s)}, " if event.moved_gaps_s else ""
    return f"{moved}kept {pause(event.kept_gaps_s)}"


def pause(gaps_s: Sequence[float]) -> str:
    """Format the median and the longest pause in s."""
    return f"{median(gaps_s):.1f}/{max(gaps_s):.1f} s" if gaps_s else "-"


def comparison(results: Sequence[Result]) -> RenderableType:
    """Return a table of both runs side by side."""
    table = Table(
        "",
        *(result.assignor for result in results),
        title="The same events under each assignor; stood still: median/longest",
    )
    for label, cell in ROWS.items():
        table.add_row(
            label, *("stuck" if result.verdict is None else cell(result) for result in results)
        )
    return Group(Text(""), table, *map(Text, LEGEND))


def _gaps(result: Result, which: str) -> list[float]:
    return [gap for event in result.events[1:] for gap in getattr(event, which)]


ROWS = {
    "partitions per worker": lambda r: (
        f"{min(min(e.loads) for e in r.events)}..{max(max(e.loads) for e in r.events)}"
    ),
    "workers without a partition": lambda r: str(sum(e.idle for e in r.events)),
    "moved (fewest possible)": lambda r: (
        f"{sum(e.moves for e in r.events)} ({sum(e.minimum_moves for e in r.events)})"
    ),
    "moved cold": lambda r: str(sum(e.cold for e in r.events)),
    "moved: stood still": lambda r: pause(_gaps(r, "moved_gaps_s")),
    "kept: stood still": lambda r: pause(_gaps(r, "kept_gaps_s")),
    "without an event: stood still": lambda r: pause(r.events[0].kept_gaps_s),
    "orders sent": lambda r: f"{r.orders:,}",
    "orders repeated": lambda r: f"{r.verdict.repeated_orders:,}",
    "orders lost": lambda r: f"{r.verdict.lost_orders:,}",
    "final tables": lambda r: (
        f"equal, {r.verdict.records} records"
        if r.verdict.equal
        else f"{len(r.verdict.differing)} of {r.verdict.records} records differ"
    ),
}

"""What a person sees of the demo: a small live table, plain lines when not a terminal, the comparison."""

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


# In one line: the console breaks it where it ends itself.
LEGEND = (
    "cold: the new owner held nothing of the partition's state and replays it while the partition stands "
    "still; ours warms a copy first, while the old owner goes on. Stood still: the longest time without "
    "progress around each event; the first event is the control, in which nothing happens. A repeat is an "
    "order done twice (at-least-once) that the table recognised; a lost one never reached the table."
)


class Screen:
    """Ownership while it changes; on a pipe, one line for each event instead."""

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
        """What an event came to."""
        loads = "/".join(map(str, event.loads))
        self.console.print(f"  {event.event}", highlight=False)
        self.console.print(
            f"    loads {loads}, moves {event.moves} (minimum {event.minimum_moves}), cold {event.cold}; "
            f"stood still: moved {pause(event.moved_gaps_s)}, kept {pause(event.kept_gaps_s)}",
            highlight=False,
            soft_wrap=True,
        )


def spelled(partitions: frozenset[int] | None) -> str:
    """Partition numbers for a table cell."""
    return "..." if partitions is None else " ".join(map(str, sorted(partitions))) or "-"


def pause(gaps_s: Sequence[float]) -> str:
    """Median and longest pause in s."""
    return f"{median(gaps_s):.1f}/{max(gaps_s):.1f} s" if gaps_s else "-"


def comparison(results: Sequence[Result]) -> RenderableType:
    """The same script, side by side."""
    table = Table("", *(result.assignor for result in results), title="the same script")
    for label, cell in ROWS.items():
        table.add_row(
            label, *("stuck" if result.verdict is None else cell(result) for result in results)
        )
    return Group(Text(""), table, Text(LEGEND))


def _gaps(result: Result, which: str) -> list[float]:
    return [gap for event in result.events[1:] for gap in getattr(event, which)]


ROWS = {
    "partitions per worker, min..max": lambda r: (
        f"{min(min(e.loads) for e in r.events)}..{max(max(e.loads) for e in r.events)}"
    ),
    "workers left idle": lambda r: str(sum(e.idle for e in r.events)),
    "partitions moved (minimum)": lambda r: (
        f"{sum(e.moves for e in r.events)} ({sum(e.minimum_moves for e in r.events)})"
    ),
    "moved cold": lambda r: str(sum(e.cold for e in r.events)),
    "moved ones stood still, median/max": lambda r: pause(_gaps(r, "moved_gaps_s")),
    "without any event, median/max": lambda r: pause(r.events[0].kept_gaps_s),
    "kept ones stood still, median/max": lambda r: pause(_gaps(r, "kept_gaps_s")),
    "orders sent": lambda r: str(r.orders),
    "orders repeated": lambda r: str(r.verdict.repeated_orders),
    "orders lost": lambda r: str(r.verdict.lost_orders),
    "tables against the model": lambda r: (
        f"equal, {r.verdict.records} records"
        if r.verdict.equal
        else f"{len(r.verdict.differing)} of {r.verdict.records} records differ"
    ),
}

"""The printed results of a soak: a line for each round, and a table. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from tests.soak.quiesce import Balance
from tests.soak.schedule import Fault

HEADER = (
    f"{'round':>5} {'seed':>5}  {'faults':<62} {'rest s':>6} {'round s':>7} {'moves':>5} {'cold':>4} "
    f"{'exits':>5} {'repeats':>7} {'lost':>5} {'outputs missing':>15} {'twice':>6}"
)


@dataclass
class Row:
    """A round; ``balance`` is None without a pause of the load; ``kept`` means no broken promise.

    ``rest_s`` counts from the end of the last fault; ``exits`` counts workers that ended by
    themselves.
    """

    seed: int
    number: int
    faults: tuple[Fault, ...]
    rest_s: float | None = None
    seconds: float = 0.0
    moves: int = 0
    cold: int = 0
    exits: int = 0
    repeats: int = 0
    balance: Balance | None = None
    kept: bool = False

    def line(self) -> str:
        """The printed line."""
        rest = "-" if self.rest_s is None else f"{self.rest_s:.1f}"
        of = self.balance
        lost, missing, twice = (
            ("-", "-", "-") if of is None else (of.lost, of.missing_outputs, of.twice)
        )
        return (
            f"{self.number:>5} {self.seed:>5}  {', '.join(map(str, self.faults)):<62} {rest:>6} "
            f"{self.seconds:>7.0f} {self.moves:>5} {self.cold:>4} {self.exits:>5} {self.repeats:>7} "
            f"{lost:>5} {missing:>15} {twice:>6}{'' if self.kept else '  FAILED'}"
        )


def table(broker: str, guarantee: str, rows: Sequence[Row], failures: int, seconds: float) -> str:
    """Return the rests by fault, and the sums."""
    rests = defaultdict(list)
    for row in rows:
        for kind in {fault.kind for fault in row.faults}:
            if row.rest_s is not None:
                rests[kind].append(row.rest_s)
    balances = [row.balance for row in rows if row.balance is not None]
    lines = [
        "",
        f"{broker}, {guarantee}: {sum(row.kept for row in rows)} of {len(rows)} rounds kept every "
        f"promise, {failures} failed, {seconds / 60:.0f} min",
        f"{'fault':<15} {'rounds':>6} {'rest, median s':>14} {'longest s':>9}",
    ]
    lines += [
        f"{kind:<15} {len(times):>6} {median(times):>14.1f} {max(times):>9.1f}"
        for kind, times in sorted(rests.items())
    ]
    last = {row.seed: row.balance for row in rows if row.balance is not None}
    lines.append(
        f"orders {sum(b.orders for b in last.values())}, compared {len(balances)} times, "
        f"lost {sum(b.lost for b in last.values())}, processed again {sum(row.repeats for row in rows)}; "
        f"outputs missing {sum(b.missing_outputs for b in last.values())}, "
        f"twice {sum(b.twice for b in last.values())}; tasks moved {sum(row.moves for row in rows)}, "
        f"cold {sum(row.cold for row in rows)}; workers that ended by themselves "
        f"{sum(row.exits for row in rows)}"
    )
    return "\n".join(lines)

"""Read a group's decisions and recoveries from ledger lines of several workers. No I/O."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from faust_assigner.errors import FaustAssignerError
from faust_assigner.ledger import Row, parse
from faust_assigner.story.decisions import (
    Decision,
    Placed,
    Recovery,
    decision_of,
    recovery_of,
    shared_hosts,
)

#: The most generations and seconds by which a wrong clock may reorder decisions.
NEAR, SKEW_S = 10, 120.0


class NothingKnown(FaustAssignerError):
    """The ledgers lack the requested data; the message names the available data."""


@dataclass(frozen=True, kw_only=True)
class Story:
    """All decisions and all recoveries of a group, each sorted by time."""

    group: str
    decisions: tuple[Decision, ...]
    recoveries: tuple[Recovery, ...]

    def name(self, member_id: str) -> str:
        """Return the member's name from the newest decision that names the member."""
        for decision in reversed(self.decisions):
            if member_id in decision.all_names:
                return decision.all_names[member_id]
        return member_id


def in_order(decisions: Iterable[Decision]) -> list[Decision]:
    """Sort decisions by time, and by generation where a clock was set back or leaders' clocks differ.

    Generations begin again after a group's deletion. The generation therefore decides the order only of
    decisions that are at most ``NEAR`` generations and ``SKEW_S`` seconds apart, and only while no
    generation repeats.
    """
    lives: list[dict[int, Decision]] = [{}]
    newest: Decision | None = None
    for one in sorted(decisions, key=lambda one: (one.at, one.generation)):
        if newest is not None and one.generation <= newest.generation:
            is_near = newest.generation - one.generation <= NEAR and one.at - newest.at <= SKEW_S
            if not is_near or one.generation in lives[-1]:
                lives.append({})
                newest = None
        if newest is None or one.generation > newest.generation:
            newest = one
        lives[-1][one.generation] = one
    return [life[generation] for life in lives for generation in sorted(life)]


@dataclass
class _Rows:
    """The rows of one group: decisions by id, their partitions, and recoveries; repeated rows count once."""

    decisions: dict[str, dict[str, Any]] = field(default_factory=dict)
    placed: defaultdict[str, Placed] = field(default_factory=lambda: defaultdict(Placed))
    recoveries: set[Recovery] = field(default_factory=set)

    def add(self, row: Row, line: bytes) -> None:
        """Add a row; only the first line of a decision counts.

        ``line`` has fields that are not among the row's checked values.
        """
        values = row.values
        if row.table == "decision":
            self.decisions.setdefault(
                values["decision_id"], {**json.loads(line), "ts": values["ts"]}
            )
        elif row.table == "assignment":
            self.placed[values["decision_id"]].add(json.loads(line))
        elif row.table == "recovery":
            self.recoveries.add(recovery_of(values))


def read(lines: Iterable[bytes], group: str | None = None) -> Story:
    """Read the history of ``group`` (None: of the only group); invalid lines are ignored.

    Raises :class:`NothingKnown` if there is no decision, or if there are several groups and ``group`` is
    None.
    """
    groups: defaultdict[str, _Rows] = defaultdict(_Rows)
    for line in lines:
        row = parse(line)
        if isinstance(row, Row) and group in (None, row.values["group_id"]):
            groups[row.values["group_id"]].add(row, line)
    decided = {name: rows for name, rows in groups.items() if rows.decisions}
    if len(decided) > 1:
        raise NothingKnown(
            f"ledgers of several groups, choose one with --group: {', '.join(sorted(decided))}"
        )
    if not decided:
        of_group = f" of the group {group}" if group else ""
        raise NothingKnown(
            f"no decision in the ledger{of_group}: only leaders write decisions, so name the ledgers of all "
            "workers"
        )
    ((name, rows),) = decided.items()
    shared = shared_hosts(rows.decisions.values())
    decisions = (
        decision_of(row, rows.placed[decision_id], shared)
        for decision_id, row in rows.decisions.items()
    )
    return Story(
        group=name,
        decisions=tuple(in_order(decisions)),
        recoveries=tuple(sorted(rows.recoveries, key=lambda one: (one.started, one.place))),
    )

"""Groups for the page: of any size, with lags of all shades, a silent worker, warm-ups."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from faust_assigner.page.history import History
from faust_assigner.page.look import Look, Problem
from faust_assigner.page.scrub import scrubbed
from faust_assigner.page.tasks import families_of
from faust_assigner.status.build import build
from faust_assigner.status.evidence import Evidence, Heard
from faust_assigner.status.report import ANSWERED, Report
from faust_assigner.warmup import WarmupPolicy
from faust_assigner.wire.worker_status import CopyLag, RoundTold, Standstill
from tests.support.status import AT, MadeGroup, group

TOPICS = ("orders", "shop-totals-changelog")
#: Lags of all shades; most are small, as in production.
LAGS = (0, 0, 12, 0, 60, 0, 240, 3, 0, 1_900, 0, 40, 22_000, 0, 7)


def fleet(members: int, each: int = 4, **more: Any) -> MadeGroup:
    """A group of ``members`` with instance ids and racks; the last one joined in the last round."""
    topics = dict.fromkeys((*TOPICS, "customers"), members * each) | {"rates": max(2, members)}
    made = MadeGroup(topics=topics, **more)
    for n in range(members - 1):
        made.join(f"m{n}", instance_id=f"shop-{n}", rack_id=f"az-{'abc'[n % 3]}")
    made.round()
    made.end = 50_000
    made.round()
    made.join(f"m{members - 1}", instance_id=f"shop-{members - 1}", rack_id="az-b")
    return made.round(warmups=WarmupPolicy())


def busy(made: MadeGroup, *, silent: bool = True, turn: int = 0) -> Evidence:
    """A look at the group: lags of all shades, a silent worker, a stalled partition."""
    heard: dict[str, Heard] = {}
    for at, name in enumerate(sorted(made.claims, key=lambda name: int(name[1:]))):
        status = made.status_of(name)
        copies = tuple(
            replace(
                one,
                records=(lag := LAGS[(at * 7 + one.partition * 3 + turn) % 15]),
                seconds=lag / 50,
            )
            for one in status.copies
        )
        standing: tuple[Standstill, ...] = ()
        if silent and at == 0:
            topic = next(t for t in ("orders", *sorted(status.actives)) if t in status.actives)
            standing = (
                Standstill(
                    topic=topic,
                    partition=status.actives[topic][0],
                    reason="unreadable",
                    seconds=94.0,
                ),
            )
        heard[status.url] = Heard(
            answer=ANSWERED,
            status=replace(
                status,
                copies=copies,
                standing=standing,
                not_ready=("1 partition stands still: its records cannot be read",)
                * bool(standing),
            ),
        )
    found = made.evidence(silent=["m1"] if silent and len(made.claims) > 1 else [], heard={})
    quiet = {url for url, one in found.heard.items() if one.status is None}
    heard |= {url: found.heard[url] for url in quiet}
    committed = {
        (topic, number): max(0, made.end - LAGS[(number * 4 + len(topic) + turn) % 15])
        for topic, number in found.committed
    }
    return replace(found, heard=heard, committed=committed)


def look_at(
    report: Report | None, *, history: History | None = None, problem: Problem | None = None
) -> Look:
    """Return a look with this report."""
    report = None if report is None else scrubbed(report)
    families = () if report is None else families_of(report)
    history = history or History()
    if report is not None:
        history.note(report, families)
    return Look(
        group="shop",
        report=report,
        families=families,
        history=history,
        problem=problem,
        every_s=2.0,
    )


@dataclass
class Script:
    """Return look after look, then the last look repeatedly; raise exceptions among them."""

    looks: Iterator[Evidence | Exception]
    last: Evidence | Exception | None = None
    opened: int = 0
    closed: int = 0
    asked: int = 0
    told: tuple[RoundTold, ...] = ()
    told_times: int = 0

    async def look(self) -> Evidence:
        """Return the next look."""
        self.asked += 1
        self.last = next(self.looks, self.last)
        if isinstance(self.last, Exception):
            raise self.last
        assert self.last is not None
        return self.last

    async def rounds(self, evidence: Evidence) -> tuple[RoundTold, ...]:
        """Return the workers' earlier rounds."""
        self.told_times += 1
        return self.told

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[Script]:
        """Open the script as the watch does."""
        self.opened += 1
        try:
            yield self
        finally:
            self.closed += 1


__all__ = ["AT", "CopyLag", "Script", "build", "busy", "fleet", "group", "look_at"]

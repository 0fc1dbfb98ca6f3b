"""The command ``faust-assigner deploy-check``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

import click

from faust_assigner.cli.failure import quiet_kafka, reported_errors
from faust_assigner.cli.looking import look_options, where_of
from faust_assigner.cli.options import Number, properties
from faust_assigner.cli.screen import console

if TYPE_CHECKING:
    from faust_assigner.deploy.judge import Budget
    from faust_assigner.deploy.pauses import Recoveries
    from faust_assigner.deploy.play import Question
    from faust_assigner.deploy.report import Report
    from faust_assigner.deploy.steps import Known
    from faust_assigner.ledger import Row
    from faust_assigner.status.collect import Looks, Where
    from faust_assigner.status.evidence import Evidence

#: Ledger pages to read from each worker at most; they hold the worker's last recoveries.
LEDGER_PAGES = 2
#: Exit code if the question cannot be answered.
CANNOT_TELL = 2


@click.command(name="deploy-check")
@click.argument("stopping", nargs=-1, metavar="[WORKER]...")
@click.option("--rolling", is_flag=True, help="Check a restart of every worker, one by one.")
@click.option("--lose-rack", metavar="RACK", help="Check the loss of all workers of a rack.")
@click.option(
    "--scale",
    type=click.IntRange(min=0),
    metavar="N",
    help="Check a change to N workers: new workers join, or the workers with the highest numbers "
    "in their names stop.",
)
@click.option(
    "--max-cold",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="The allowed number of tasks that move to a worker without a caught-up copy.",
)
@click.option(
    "--max-pause", type=Number(min=0), metavar="SECONDS", help="The allowed downtime of a task."
)
@click.option(
    "--members",
    type=click.IntRange(min=1),
    metavar="N",
    help="The required number of members, to confirm the return of the last restarted worker.",
)
@click.option(
    "--wait",
    type=Number(min=0),
    default=0.0,
    metavar="SECONDS",
    help="Repeat the check for this time until it is safe.",
)
@click.option(
    "--every",
    type=Number(min=0.1),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="With --wait: the time between two checks.",
)
@click.option(
    "--ledger",
    "ledgers",
    multiple=True,
    metavar="FOLDER|TOPIC",
    help="A ledger (folder, file, URL or kafka://HOST:PORT/TOPIC) whose recoveries show the "
    "duration of a "
    "move; without a ledger the workers' own. May be repeated.",
)
@click.option(
    "--restart",
    type=Number(min=0),
    metavar="SECONDS",
    help="The duration of a worker's restart, which stops the tasks of a static member.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print JSON (docs/reference/deploy-check.md)."
)
@look_options
def deploy_check(
    stopping: tuple[str, ...],
    rolling: bool,
    lose_rack: str | None,
    scale: int | None,
    max_cold: int,
    max_pause: float | None,
    members: int | None,
    wait: float,
    every: float,
    ledgers: tuple[str, ...],
    restart: float | None,
    as_json: bool,
    group_id: str,
    **reach: Any,
) -> None:
    """Check whether WORKER can be stopped safely: a name of faust-assigner status, a URL or an instance id.

    The check requires that every worker answers, that no rebalance or restore is in progress, that every
    task has a caught-up copy on a different worker, and that the disks have room. It runs the
    leader's planner on the current group, so the shown moves are the moves to expect. The exit code is
    0 if the stop is safe, 1 if a check fails or a budget is exceeded, and 2 if the question cannot be
    answered.
    """
    from faust_assigner.deploy.judge import Budget

    question = _parse_question(stopping, rolling, lose_rack, scale)
    budget = Budget(cold=max_cold, pause_s=max_pause, members=members)
    try:
        with reported_errors(), quiet_kafka():
            where = where_of(group_id=group_id, **reach)
            known = _load_known(ledgers, group_id, restart, reach["config"])
            found = asyncio.run(_until_safe(where, question, budget, known, wait, every))
    except SystemExit:
        raise SystemExit(CANNOT_TELL) from None
    _show(found, as_json)


def _parse_question(
    stopping: tuple[str, ...], rolling: bool, lose_rack: str | None, scale: int | None
) -> Question:
    from faust_assigner.deploy.play import LOSE_RACK, ROLLING, SCALE, STOP, Question

    asked = [bool(stopping), rolling, lose_rack is not None, scale is not None]
    if sum(asked) != 1:
        raise click.UsageError("give exactly one of WORKER, --rolling, --lose-rack and --scale")
    if rolling:
        return Question(kind=ROLLING)
    if lose_rack is not None:
        return Question(kind=LOSE_RACK, rack=lose_rack)
    if scale is not None:
        return Question(kind=SCALE, size=scale)
    return Question(kind=STOP, workers=stopping)


def _load_known(
    ledgers: tuple[str, ...], group_id: str, restart_s: float | None, config: str | None
) -> Known:
    from faust_assigner.deploy.steps import Known
    from faust_assigner.pipeline.ledgers.rows import accepted_rows

    if not ledgers:
        return Known(restart_s=restart_s)
    rows = accepted_rows(ledgers, properties=properties(config))
    recoveries = _select_recoveries(rows, group_id, "the ledger's recoveries")
    return Known(recoveries=recoveries, restart_s=restart_s)


def _select_recoveries(rows: Iterable[Row | object], group_id: str, origin: str) -> Recoveries:
    from faust_assigner.deploy.pauses import Recoveries
    from faust_assigner.ledger import Row

    found = (row.values for row in rows if isinstance(row, Row) and row.table == "recovery")
    return Recoveries.of(found, group_id, origin)


async def _with_recoveries(known: Known, looks: Looks, evidence: Evidence) -> Known:
    """Return ``known`` with recoveries from the workers' own ledgers, if no ledger was given."""
    from faust_assigner.ledger import parse

    if known.recoveries.origin:
        return known
    lines, _ = await looks.ledgers(evidence, most_pages=LEDGER_PAGES)
    if not lines:
        return known
    told = _select_recoveries(map(parse, lines), evidence.group.group_id, "the workers' recoveries")
    return replace(known, recoveries=told)


async def _until_safe(
    where: Where, question: Question, budget: Budget, known: Known, wait_s: float, every_s: float
) -> Report:
    """Repeat the check until the verdict is ``safe`` or ``wait_s`` is over; return the last report."""
    from faust_assigner.status.collect import Looks

    end = time.monotonic() + wait_s
    said = ""
    async with Looks(where, time.time) as looks:
        while True:
            found = await _one_look(
                looks, question, budget, known, must_answer=_is_wait_over(end, every_s)
            )
            if isinstance(found, str):
                why = found
            elif found.exit_code == 0 or _is_wait_over(end, every_s):
                return found
            else:
                why = _unsafe_reason(found)
            if why != said:
                said = why
                left = max(0.0, end - time.monotonic())
                click.echo(f"faust-assigner: not yet, {why}; waiting {left:.0f} s more", err=True)
            await asyncio.sleep(every_s)


def _is_wait_over(end: float, every_s: float) -> bool:
    return time.monotonic() + every_s > end


async def _one_look(
    looks: Looks, question: Question, budget: Budget, known: Known, *, must_answer: bool
) -> Report | str:
    """Make one check. If it fails with an error and time remains for a retry, return the error's text."""
    from faust_assigner.deploy.judge import judge
    from faust_assigner.deploy.read import read_evidence
    from faust_assigner.pipeline.failure import verdict

    try:
        evidence = await looks.look()
        known = await _with_recoveries(known, looks, evidence)
        return judge(read_evidence(evidence), question, budget, known)
    except Exception as error:
        said = verdict(error)
        if must_answer or said is None:
            raise
        return said[0]


def _unsafe_reason(found: Report) -> str:
    from faust_assigner.deploy.report import FAILED, OK

    worst = sorted(
        (check for check in found.checks if check.state != OK), key=lambda c: c.state != FAILED
    )
    return f"{worst[0].name}: {worst[0].text}"


def _show(found: Report, as_json: bool) -> NoReturn:
    if as_json:
        from faust_assigner.wire.documents import dumps

        click.echo(dumps(found))
    else:
        from faust_assigner.deploy.render import render

        console(width=120).print(render(found))
    raise SystemExit(found.exit_code)

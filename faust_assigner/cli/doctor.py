"""The command ``faust-assigner doctor``."""

from __future__ import annotations

import asyncio
import json
import os
import time
from typing import TYPE_CHECKING, NoReturn

import click

from faust_assigner.cli.failure import quiet_kafka, reported_errors
from faust_assigner.cli.groups import bootstrap_option
from faust_assigner.cli.options import Number, cluster, config_option, json_option
from faust_assigner.cli.screen import console

if TYPE_CHECKING:
    from faust_assigner.doctor.app_checks import Deployment
    from faust_assigner.doctor.codes import Finding
    from faust_assigner.doctor.result import Result

#: The exit codes: no findings at the level of ``--fail-on`` or above, such findings, no check possible.
GOOD, FOUND, NOT_LOOKED = 0, 1, 2
#: Seconds between two reads of a group; a difference reveals workers that replace each other.
BETWEEN_S = 4.0


@click.command()
@click.option(
    "-A", "--app", metavar="NAME", help="The app in the form of faust -A: shop.app, shop:app."
)
@bootstrap_option
@click.option(
    "--group",
    "group_id",
    metavar="APP",
    help="The id of a running group; the default with -A is the app's group.",
)
@config_option
@click.option(
    "--worker",
    "workers_at",
    multiple=True,
    metavar="URL",
    help="An additional web server to query.",
)
@click.option(
    "--workers", type=click.IntRange(min=1), metavar="N", help="The planned number of workers."
)
@click.option(
    "--racks", type=click.IntRange(min=1), metavar="N", help="The planned number of racks."
)
@click.option(
    "--grace",
    type=Number(min=0),
    metavar="SECONDS",
    help="The supervisor's grace for a stopping worker: terminationGracePeriodSeconds (30 by "
    "default), "
    "TimeoutStopSec (90).",
)
@click.option("--ignore", multiple=True, metavar="CODE", help="Leave out a code. May be repeated.")
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning", "note"]),
    default="warning",
    show_default=True,
    help="The lowest level of findings that causes exit code 1.",
)
@click.option(
    "--explain", metavar="CODE", help="Print a code's meaning and fix, without any check."
)
@json_option
def doctor(
    app: str | None,
    bootstrap: str | None,
    group_id: str | None,
    config: str | None,
    workers_at: tuple[str, ...],
    workers: int | None,
    racks: int | None,
    grace: float | None,
    ignore: tuple[str, ...],
    fail_on: str,
    explain: str | None,
    as_json: bool,
) -> None:
    """Find problems in an app's setup or in a running group, with their fixes.

    -A checks the app on this machine without any connection. With --bootstrap the app's topics and its
    running group are checked as well; --group alone checks a group without its code. The exit code is 1
    with findings of the level of --fail-on or above, 2 if no check was possible, and otherwise 0.
    """
    from faust_assigner.doctor.app_checks import Deployment

    _check_codes(*ignore, *([explain] if explain else []))
    if explain:
        _print_explanation(explain)
        return
    if app is None and group_id is None:
        raise click.UsageError("give -A APP, or --bootstrap HOST:PORT --group APP, or both")
    if app is None and (workers or racks):
        raise click.UsageError("--workers and --racks plan the deployment of an app: add -A APP")
    deployment = Deployment(workers=workers, racks=racks, grace_s=grace)
    try:
        with reported_errors(), quiet_kafka():
            found = _run_checks(app, bootstrap, group_id, config, workers_at, deployment)
    except SystemExit:
        raise SystemExit(NOT_LOOKED) from None
    _show(found.without(_upper_codes(ignore)), fail_on, as_json)


def _upper_codes(codes: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(code.upper() for code in codes)


def _check_codes(*codes: str) -> None:
    from faust_assigner.doctor.codes import BY_CODE

    for code in _upper_codes(codes):
        if code not in BY_CODE:
            raise click.BadParameter(f"unknown code {code}; the codes are {', '.join(BY_CODE)}")


def _print_explanation(code: str) -> None:
    from faust_assigner.doctor.codes import BY_CODE

    entry = BY_CODE[code.upper()]
    console().print(
        f"{entry.code} ({entry.level}): {entry.title}\n\n{entry.why}\n\nFix: {entry.fix}",
        markup=False,
    )


def _run_checks(
    app: str | None,
    bootstrap: str | None,
    group_id: str | None,
    config: str | None,
    workers_at: tuple[str, ...],
    deployment: Deployment,
) -> Result:
    from faust_assigner.doctor.app_checks import check_app
    from faust_assigner.doctor.result import result

    facts = None
    if app is not None:
        from faust_assigner.doctor.app_facts import load

        facts = load(app)
    if bootstrap is None and group_id is None and facts is not None:
        offline = ("The topics and the running group were not checked; add --bootstrap HOST:PORT",)
        return result([f"app {facts.app_id}"], check_app(facts, deployment), offline)
    connection = cluster(bootstrap, config).connection()
    looked_at: list[str] = []
    findings: list[Finding] = []
    unchecked: list[str] = []
    if facts is not None:
        from faust_assigner.doctor.group_facts import topics_of

        names = {*facts.sources, *(table.changelog for table in facts.tables)}
        topics = asyncio.run(topics_of(connection, names))
        looked_at.append(f"app {facts.app_id}")
        findings += check_app(facts, deployment, topics)
        unchecked += [f"Topic {name} does not exist yet" for name in sorted(names - topics.keys())]
    named = group_id or (facts.app_id if facts is not None else "")
    # With -A, check_app has already compared the grace with the app's settings.
    grace_s = deployment.grace_s if facts is None else None
    seen = _group(connection, named, workers_at, grace_s, must_exist=group_id is not None)
    return result(
        [*looked_at, *seen.looked_at], [*findings, *seen.findings], [*unchecked, *seen.unchecked]
    )


def _group(
    connection: object,
    group_id: str,
    workers_at: tuple[str, ...],
    grace_s: float | None,
    *,
    must_exist: bool,
) -> Result:
    from faust_assigner.clients.groups import GroupNotFound
    from faust_assigner.doctor.group_checks import check_group, check_group_grace, unchecked
    from faust_assigner.doctor.group_facts import look
    from faust_assigner.doctor.result import result
    from faust_assigner.settings import schema
    from faust_assigner.settings.table import URLS
    from faust_assigner.status.collect import Where

    where = Where(
        connection=connection,  # type: ignore[arg-type]
        group_id=group_id,
        workers=workers_at,
        patterns=schema.read(URLS, environment=os.environ),
    )
    try:
        facts = asyncio.run(look(where, between_s=BETWEEN_S, clock=time.time))
    except GroupNotFound as error:
        if must_exist:
            raise
        return result([], [], [str(error)])
    members = len(facts.evidence.group.members)
    found = check_group(facts)
    if grace_s is not None:
        found = (*found, *check_group_grace(facts, grace_s))
    return result([f"group {group_id} ({members} members)"], found, unchecked(facts))


def _show(found: Result, fail_on: str, as_json: bool) -> NoReturn:
    if as_json:
        click.echo(json.dumps(found.as_json()))
    else:
        from faust_assigner.doctor.render import render

        console(width=110).print(render(found))
    raise SystemExit(found.exit_code(fail_on=fail_on))

"""The commands for an operator's queries, such as consumers, assignments, plan and health."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from faust_assigner.cli.failure import reported_errors
from faust_assigner.cli.service.operator_options import (
    CHANNEL,
    offered,
    print_rows,
    shared,
    show,
    warn_if_old,
    watched,
)

if TYPE_CHECKING:
    from faust_assigner.service.client.operator import Operator


def _time_text(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _enum_word(one: Any, field: str) -> str:
    """Return an enum's value as a word: ``HANDOFF_PHASE_WARMING`` -> ``Warming``."""
    kind = one.DESCRIPTOR.fields_by_name[field].enum_type
    return str(kind.values_by_number[getattr(one, field)].name.rpartition("_")[2].capitalize())


@click.command()
@watched
@shared
async def topics(operator: Operator, watch: bool, as_json: bool) -> None:
    """List the topics whose partitions are assigned."""
    heads = ("topic", "partitions")
    await show(
        operator, watch, as_json, "topics", heads, lambda one: (one.topic, one.partition_count)
    )


@click.command()
@watched
@shared
async def consumers(operator: Operator, watch: bool, as_json: bool) -> None:
    """List the registered consumers."""
    await show(
        operator,
        watch,
        as_json,
        "consumers",
        ("consumer", "status", "topics", "rack", "capacity"),
        lambda one: (
            one.consumer_name,
            _enum_word(one, "status"),
            list(one.topics),
            one.rack,
            one.capacity,
        ),
    )


@click.command()
@watched
@shared
async def assignments(operator: Operator, watch: bool, as_json: bool) -> None:
    """List the owner of each partition."""
    await show(
        operator,
        watch,
        as_json,
        "assignments",
        ("topic", "partition", "owner", "epoch", "absent"),
        lambda one: (
            one.partition.topic,
            one.partition.partition,
            one.owner,
            one.epoch,
            "absent" if one.absent else "",
        ),
    )


@click.command()
@watched
@shared
async def handoffs(operator: Operator, watch: bool, as_json: bool) -> None:
    """List the hand-offs in progress."""
    await show(
        operator,
        watch,
        as_json,
        "handoffs",
        ("topic", "partition", "from", "to", "phase", "progress", "age_s", "handoff_id"),
        lambda one: (
            one.partition.topic,
            one.partition.partition,
            one.old_owner,
            one.new_owner,
            _enum_word(one, "phase"),
            round(one.progress, 3),
            round(one.age_s, 1),
            one.handoff_id,
        ),
    )


@click.command()
@watched
@shared
async def pins(operator: Operator, watch: bool, as_json: bool) -> None:
    """List the pinned partitions: pinned until unpin, or (once) until the move is complete."""
    await show(
        operator,
        watch,
        as_json,
        "pins",
        ("topic", "partition", "consumer", "once"),
        lambda one: (
            one.partition.topic,
            one.partition.partition,
            one.consumer_name,
            "once" if one.once else "",
        ),
    )


@click.command()
@shared
async def status(operator: Operator, as_json: bool) -> None:
    """Show the group's state: the leader, a pause, and the numbers of its topics, consumers and moves.

    ``age_s``: the seconds since the store last answered the instance. Some seconds are usual.
    """
    state = await operator.state()
    warn_if_old(state)
    owned = sum(not one.absent for one in state.assignments)
    rows: dict[str, Any] = {
        "leader": state.leader,
        "revision": state.revision,
        "age_s": round(state.age_s, 1),
        "paused": state.HasField("paused"),
        "reason": state.paused.reason,
        "paused_since": _time_text(state.paused.since) if state.HasField("paused") else "",
        "consumers": len(state.consumers),
        "draining": sum(_enum_word(one, "status") == "Draining" for one in state.consumers),
        "partitions": sum(one.partition_count for one in state.topics),
        "owned": owned,
        "handoffs": len(state.handoffs),
        "pins": len(state.pins),
    }
    if as_json:
        click.echo(json.dumps(rows))
        return
    print_rows(rows.items(), ("what", "value"), as_json)


@click.command()
@click.option(
    "--dry-run", is_flag=True, default=True, help="Only compute the plan; this is the only mode."
)
@click.option(
    "--without",
    multiple=True,
    metavar="NAME",
    help="Plan as if this consumer were gone. May be repeated.",
)
@click.option(
    "--add",
    multiple=True,
    metavar="NAME",
    help="Plan as if this consumer were registered. May be repeated.",
)
@shared
async def plan(
    operator: Operator, dry_run: bool, without: tuple[str, ...], add: tuple[str, ...], as_json: bool
) -> None:
    """Show the moves of a rebalance now, or after a change; the store is not changed."""
    moves = await operator.plan(without=without, extra=add)
    print_rows(
        [
            (one.partition.topic, one.partition.partition, one.from_owner, one.to_owner)
            for one in moves
        ],
        ("topic", "partition", "from", "to"),
        as_json,
        nothing="no moves",
    )


@click.command()
@click.option(
    "--role",
    type=click.Choice(["serving", "readiness", "liveness", "leader", "process"]),
    default="serving",
    show_default=True,
    help="The health check. readiness: the instance serves consumers, and an instance leads; "
    "liveness: all its tasks run; leader: it leads.",
)
@offered(CHANNEL)
def health(
    at: str, role: str, ca: Path | None, cert: Path | None, key: Path | None, server_name: str
) -> None:
    """Check an instance's health, for probes: exit code 0 if it is healthy, else 1. Needs no token."""
    with reported_errors():
        from faust_assigner.service.client.channel import Access
        from faust_assigner.service.client.operator import health_problem

        access = Access(ca=ca, cert=cert, key=key, server_name=server_name)
        problem = asyncio.run(health_problem(at, role, access))
    if problem is None:
        click.echo(f"{at}: the check {role} passed")
        return
    click.echo(f"{at}: the check {role} failed: {problem}")
    raise SystemExit(1)

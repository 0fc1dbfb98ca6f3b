"""``faust-assigner groups list``, ``describe``, ``rolls`` and ``retire``, for any Kafka."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from faust_assigner.cli.failure import reported_errors
from faust_assigner.cli.options import cluster, config_option, json_option

if TYPE_CHECKING:
    from rich.table import Table

    from faust_assigner.clients.group_views import GroupMemberView, GroupView

NOTHING = "-"
bootstrap_option = click.option(
    "--bootstrap", metavar="HOST:PORT[,...]", help="Brokers for the first connection."
)


@click.group()
def groups() -> None:
    """Show groups of both protocols, their members and lag, on any Kafka."""


@groups.command(name="list")
@bootstrap_option
@config_option
@json_option
def list_(bootstrap: str | None, config: str | None, as_json: bool) -> None:
    """List all groups: id, type, protocol type, state."""
    with reported_errors():
        from faust_assigner.clients.groups import list_groups

        found = asyncio.run(list_groups(cluster(bootstrap, config).connection()))
        if as_json:
            click.echo(json.dumps([asdict(group) for group in found]))
            return
        if not found:
            click.echo("no groups")
            return
        table = _new_table("group", "type", "protocol type", "state")
        for group in found:
            table.add_row(
                group.group_id,
                group.group_type or NOTHING,
                group.protocol_type or NOTHING,
                group.state or NOTHING,
            )
        _show(table)


@groups.command()
@click.argument("group_id")
@bootstrap_option
@config_option
@json_option
def describe(group_id: str, bootstrap: str | None, config: str | None, as_json: bool) -> None:
    """Describe a group: state, epochs, members with their partitions, lag by partition."""
    with reported_errors():
        from faust_assigner.clients.groups import describe_group

        group = asyncio.run(describe_group(cluster(bootstrap, config).connection(), group_id))
        if as_json:
            click.echo(
                json.dumps(
                    {
                        **asdict(group),
                        "partitions": [{**asdict(row), "lag": row.lag} for row in group.partitions],
                    },
                    default=sorted,
                )
            )
            return
        _print_group(group)


@groups.command()
@click.argument("group_id")
@bootstrap_option
@config_option
@json_option
def rolls(group_id: str, bootstrap: str | None, config: str | None, as_json: bool) -> None:
    """Show which of a Faust app's workers force eager rebalances, and the next roll to make."""
    with reported_errors():
        from faust_assigner.clients.rolls import rolls as rolls_of

        found = asyncio.run(rolls_of(cluster(bootstrap, config).connection(), group_id))
        if as_json:
            click.echo(json.dumps({**asdict(found), "advice": found.roll_steps}))
            return
        table = _new_table("member", "client", "host", "worker")
        for worker in found.workers:
            table.add_row(worker.member_id, worker.client_id, worker.host, worker.kind)
        _show(table)
        click.echo("\n".join((f"the last round: {found.chosen}", *found.roll_steps)))


@groups.command()
@click.argument("group_id")
@click.option(
    "--instance-id",
    "instance_ids",
    multiple=True,
    required=True,
    help="The static member's group.instance.id (consumer_group_instance_id); may be repeated.",
)
@bootstrap_option
@config_option
@json_option
def retire(
    group_id: str,
    instance_ids: tuple[str, ...],
    bootstrap: str | None,
    config: str | None,
    as_json: bool,
) -> None:
    """Remove stopped static members that will not return.

    Their partitions move immediately instead of after the session timeout. A member whose process still runs
    joins again: for a hand-over before its stop, see docs/how-to/adopt.md.
    """
    with reported_errors():
        from faust_assigner.clients.groups import retire as retire_members

        found = asyncio.run(
            retire_members(cluster(bootstrap, config).connection(), group_id, instance_ids)
        )
        if as_json:
            click.echo(json.dumps({name: error or None for name, error in found.items()}))
        else:
            for name, error in found.items():
                absent = "the group has no member with this instance id: "
                why = absent * (error == "UnknownMemberIdError") + error
                click.echo(f"{name}: {f'not removed, {why}' if error else 'removed'}")
        if any(found.values()):
            raise SystemExit(1)


def _print_group(group: GroupView) -> None:
    click.echo(
        f"group {group.group_id}: {group.group_type} {group.protocol_type or NOTHING}, {group.state}, "
        f"{len(group.members)} members, assignor {group.assignor or NOTHING}, at {group.coordinator}"
    )
    if group.epoch is not None:
        click.echo(f"group epoch {group.epoch}, target assignment epoch {group.target_epoch}")
    if group.members:
        table = _new_table(
            "member",
            "instance",
            "client",
            "host",
            "epoch",
            "owned",
            "standby",
            "pending",
            "revoking",
        )
        for member in group.members:
            table.add_row(*_member_cells(member, in_consumer_group=group.epoch is not None))
        _show(table)
    if group.partitions:
        table = _new_table(
            "topic", "partition", "committed", "end", "lag", "owner", numbers=(1, 2, 3, 4)
        )
        for row in group.partitions:
            table.add_row(
                row.topic,
                str(row.partition),
                _number_or_dash(row.committed),
                _number_or_dash(row.end),
                _number_or_dash(row.lag),
                row.owner or NOTHING,
            )
        _show(table)
        lags = [row.lag for row in group.partitions if row.lag is not None]
        click.echo(f"total lag {sum(lags)}, of {len(lags)} of {len(group.partitions)} partitions")


def _member_cells(member: GroupMemberView, *, in_consumer_group: bool) -> list[str]:
    from faust_assigner.clients.group_views import as_ranges

    owned = (
        f"{member.shares} bytes"
        if member.shares is not None
        else "\n".join(as_ranges(member.owned))
    )
    return [
        member.member_id,
        member.instance_id or NOTHING,
        member.client_id,
        member.host,
        "classic" if member.is_classic and in_consumer_group else _number_or_dash(member.epoch),
        owned or NOTHING,
        "\n".join(as_ranges(member.standbys)) or NOTHING,
        "\n".join(as_ranges(member.pending)) or NOTHING,
        "\n".join(as_ranges(member.revoking)) or NOTHING,
    ]


def _number_or_dash(value: int | None) -> str:
    return NOTHING if value is None else str(value)


def _new_table(*heads: str, numbers: tuple[int, ...] = ()) -> Table:
    from rich.box import SIMPLE
    from rich.table import Table

    table = Table(box=SIMPLE, show_edge=False, pad_edge=False)
    for number, head in enumerate(heads):
        table.add_column(head, justify="right" if number in numbers else "left", overflow="fold")
    return table


def _show(table: Table) -> None:
    from rich.console import Console

    click.echo()
    # Rich's markup is off, because members choose their names, which may contain brackets.
    Console(
        width=None if click.get_text_stream("stdout").isatty() else 160,
        highlight=False,
        emoji=False,
        markup=False,
    ).print(table)

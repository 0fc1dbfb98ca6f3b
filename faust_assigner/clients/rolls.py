"""Finds the workers of a Faust app that force eager rebalances, and advises the next rolling restart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aiokafka.client import CoordinationType
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata

from faust_assigner.clients.groups import GroupNotFound, client_of, described
from faust_assigner.errors import TryAgain
from faust_assigner.wire import join

#: The kinds of members: cooperative, eager, a worker with Faust's own assignor (stock), or not Faust.
COOPERATIVE, EAGER, STOCK, STRANGER = "cooperative", "eager", "stock", "not Faust"
#: The state of a group outside of a rebalance.
STABLE = "Stable"
#: The recommended rolling restart by kind, or None.
NEXT = {
    STOCK: "roll them to this assignor",
    EAGER: "roll them after the causes in their logs are removed",
}


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A member of the group; its last JoinGroup's metadata shows its ``kind``."""

    member_id: str
    client_id: str
    host: str
    kind: str


@dataclass(frozen=True, kw_only=True)
class Rolls:
    """A group's members in the order of their ids, with the protocol ``chosen`` in the last round."""

    chosen: str
    workers: Sequence[Worker]

    @property
    def roll_steps(self) -> Sequence[str]:
        """Return a line of advice for each kind of worker, then a line about the return to stock Faust."""
        kinds = {
            kind: sum(worker.kind == kind for worker in self.workers)
            for kind in (COOPERATIVE, EAGER, STOCK, STRANGER)
        }
        if kinds[COOPERATIVE] == len(self.workers):
            then = "" if self.chosen == join.COOPERATIVE else " from the next one on"
            return (
                f"rebalances are cooperative{then}",
                "back to stock: roll with FAUST_ASSIGNER_COOPERATIVE=0 first",
            )
        up = tuple(f"{kinds[kind]} {kind}: {what}" for kind, what in NEXT.items() if kinds[kind])
        back = (
            "back to stock: roll the cooperative ones with FAUST_ASSIGNER_COOPERATIVE=0 first"
            if kinds[COOPERATIVE]
            else "back to stock: one roll"
        )
        return ("rebalances stop everybody", *up, back)


async def rolls(connection: Mapping[str, object], group_id: str) -> Rolls:
    """Return a classic group's workers. Raises as :func:`~faust_assigner.clients.groups.describe_group`.

    Raises TryAgain during a rebalance, in which a coordinator hides the members' metadata.
    """
    async with client_of(connection) as client:
        node = await client.coordinator_lookup(CoordinationType.GROUP, group_id)
        group = await described(client, node, group_id)
    if not group.members:
        raise GroupNotFound(f"no members of a classic group {group_id!r}")
    if group.group_state != STABLE:
        raise TryAgain(
            f"the group {group_id!r} is in state {group.group_state}: during a rebalance the coordinator "
            "hides the kinds of its members; repeat the command after the rebalance"
        )
    workers = (
        Worker(
            member_id=member.member_id,
            client_id=member.client_id,
            host=member.client_host,
            kind=kind_of(member.member_metadata),
        )
        for member in group.members
    )
    return Rolls(
        chosen=group.protocol_data, workers=tuple(sorted(workers, key=lambda w: w.member_id))
    )


def kind_of(metadata: bytes) -> str:
    """Return a member's kind from its metadata, which is untrusted."""
    try:
        said = ConsumerProtocolMemberMetadata.decode(metadata)
        data = join.decode_join(said.user_data, said.subscription)
    except Exception:  # the metadata is not a consumer's, or was refused
        return STRANGER
    if not data.is_ours:
        return STOCK
    return COOPERATIVE if data.cooperative else EAGER

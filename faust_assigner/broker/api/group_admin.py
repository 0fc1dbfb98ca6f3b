"""The APIs DescribeGroups, ListGroups and DeleteGroups."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from kio.schema.errors import ErrorCode

from faust_assigner.broker.api.call import Api, Call, Values
from faust_assigner.broker.api.operations import group_operations
from faust_assigner.broker.security.acls import CLUSTER, DESCRIBE, GROUP, THE_CLUSTER
from faust_assigner.coordinator.effects import Group
from faust_assigner.coordinator.events import DeleteGroup

if TYPE_CHECKING:
    from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
    from kio.schema.describe_groups.v6.request import DescribeGroupsRequest
    from kio.schema.list_groups.v5.request import ListGroupsRequest

DESCRIBE_GROUPS, LIST_GROUPS, DELETE_GROUPS = 15, 16, 42
DEAD: Final = "Dead"
MEMBER_BYTES: Final = 200  # estimated size of a member in an answer, without its opaque bytes


async def describe_groups(call: Call, request: DescribeGroupsRequest) -> Values:
    """Return state, protocol and members of each group.

    An unknown group has the state Dead and, since version 6, an error.
    """
    return await described_groups(call, request, request.groups, _describe, _member_size)


async def described_groups(
    call: Call,
    request: Any,
    group_ids: Iterable[str],
    describe: Callable[[Call, str], Values],
    member_bytes: Callable[[Values], int],
) -> Values:
    """Describe each group once, with the allowed operations.

    ``member_bytes`` estimates the size of one member in the answer.
    """
    groups = []
    for group_id in dict.fromkeys(group_ids):
        described = describe(call, group_id)
        if described["error_code"] is ErrorCode.none:
            may = group_operations(call, request, group_id)
            described = {**described, "authorized_operations": may}
        groups.append(described)
        await call.throttle.checkpoint(sum(map(member_bytes, described.get("members", ()))))
    return {"groups": groups}


def _member_size(member: Values) -> int:
    return len(member["member_metadata"]) + len(member["member_assignment"]) + MEMBER_BYTES


def _describe(call: Call, group_id: str) -> Values:
    group = call.node.groups.get(group_id)
    if group is None or group.group_type != "classic":
        missing = call.version >= 6
        why = "not found" if group is None else "is not a classic group"
        return {
            "error_code": ErrorCode.group_id_not_found if missing else ErrorCode.none,
            "error_message": f"Group {group_id} {why}." if missing else None,
            "group_id": group_id,
            "group_state": DEAD,
        }
    view = group.describe()
    return {
        "error_code": ErrorCode.none,
        "group_id": group_id,
        "group_state": view.state,
        "protocol_type": view.protocol_type,
        "protocol_data": view.protocol_name,
        "members": [
            {
                "member_id": m.member_id,
                "group_instance_id": m.instance_id,
                "client_id": m.client_id,
                "client_host": m.client_host,
                "member_metadata": m.metadata,
                "member_assignment": m.assignment,
            }
            for m in view.members
        ],
    }


async def list_groups(call: Call, request: ListGroupsRequest) -> Values:
    """List groups that the peer may describe, filtered by state and type on request."""
    sees_all = call.may(DESCRIBE, CLUSTER, THE_CLUSTER)
    states = {s.lower().strip() for s in getattr(request, "states_filter", ())}
    types = {t.lower() for t in getattr(request, "types_filter", ())}
    groups = []
    for group in list(call.node.groups):
        may_see = sees_all or call.may(DESCRIBE, GROUP, group.group_id)
        if may_see and _is_listed(group, states, types):
            groups.append(
                {
                    "group_id": group.group_id,
                    "protocol_type": group.protocol_type or "",
                    "group_state": group.state_name,
                    "group_type": group.group_type,
                }
            )
        await call.throttle.checkpoint()
    return {"error_code": ErrorCode.none, "groups": groups}


def _is_listed(group: Group, states: set[str], types: set[str]) -> bool:
    return (not states or group.state_name.lower() in states) and (
        not types or group.group_type in types
    )


async def delete_groups(call: Call, request: DeleteGroupsRequest) -> Values:
    """Delete groups that have no members, and the offsets of these groups."""
    results: list[Values] = []
    for group_id in dict.fromkeys(request.groups_names):

        def answered(reply: Any, group_id: str = group_id) -> None:
            results.append({"group_id": group_id, "error_code": ErrorCode(reply.error)})

        call.node.groups.ask(group_id, DeleteGroup, answered)
        await call.throttle.checkpoint()
    return {"results": results}


APIS: Final = (
    Api(DESCRIBE_GROUPS, "DescribeGroups", 0, 6, describe_groups),
    Api(LIST_GROUPS, "ListGroups", 0, 5, list_groups),
    Api(DELETE_GROUPS, "DeleteGroups", 0, 2, delete_groups),
)

"""The APIs DescribeAcls, CreateAcls and DeleteAcls for access control lists (KIP-140, KIP-290).

Without an authorizer every answer is SECURITY_DISABLED, as in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kio.schema.errors import ErrorCode

from faust_assigner.broker.api.call import Api, Call, Values
from faust_assigner.broker.limits import MAX_ACLS
from faust_assigner.broker.security.acls import Acl, AclFilter
from faust_assigner.broker.storage.store import StoreFailed

if TYPE_CHECKING:
    from kio.schema.create_acls.v3.request import CreateAclsRequest
    from kio.schema.delete_acls.v3.request import DeleteAclsRequest
    from kio.schema.describe_acls.v3.request import DescribeAclsRequest

DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS = 29, 30, 31
ACL_BYTES: Final = 100  # estimated size of one rule in an answer
NO_AUTHORIZER: Final = {
    "error_code": ErrorCode.security_disabled,
    "error_message": "No Authorizer is configured.",
}
DONE: Final = {"error_code": ErrorCode.none, "error_message": None}


def _error_result(error: ErrorCode, message: str) -> dict[str, object]:
    return {"error_code": error, "error_message": message}


def _acl_filter(asked: Any) -> AclFilter:
    return AclFilter(
        asked.resource_type_filter,
        asked.resource_name_filter,
        asked.pattern_type_filter,
        asked.principal_filter,
        asked.host_filter,
        asked.operation,
        asked.permission_type,
    )


async def describe_acls(call: Call, request: DescribeAclsRequest) -> Values:
    """Return the rules that a filter selects, by resource pattern."""
    if call.node.authorizer is None:
        return {**NO_AUTHORIZER, "resources": ()}
    wanted = _acl_filter(request)
    problem = wanted.problem()
    if problem is not None:
        return {**_error_result(ErrorCode.invalid_request, problem), "resources": ()}
    resources: dict[tuple[int, str, int], list[Values]] = {}
    for acl in list(call.node.authorizer.acls):
        is_wanted = wanted.selects(acl)
        if is_wanted:
            entry = {
                "principal": acl.principal,
                "host": acl.host,
                "operation": acl.operation,
                "permission_type": acl.permission,
            }
            place = (acl.resource_type, acl.name, acl.pattern_type)
            resources.setdefault(place, []).append(entry)
        await call.throttle.checkpoint(ACL_BYTES if is_wanted else 0)
    listed = [
        {"resource_type": kind, "resource_name": name, "pattern_type": pattern, "acls": acls}
        for (kind, name, pattern), acls in resources.items()
    ]
    return {**DONE, "resources": listed}


async def create_acls(call: Call, request: CreateAclsRequest) -> Values:
    """Store the valid rules in one write; return an error for each invalid rule."""
    if call.node.authorizer is None:
        return {"results": [NO_AUTHORIZER] * len(request.creations)}
    acls = call.node.authorizer.acls
    wanted: list[Acl] = []
    results: list[Values] = []
    for one in request.creations:
        acl = Acl(
            one.resource_type,
            one.resource_name,
            one.resource_pattern_type,
            one.principal,
            one.host,
            one.operation,
            one.permission_type,
        )
        problem = acl.problem()
        if problem is None and not acls.has_room(len(wanted) + 1):
            results.append(
                _error_result(
                    ErrorCode.policy_violation, f"there are {MAX_ACLS} access control lists"
                )
            )
        elif problem is not None:
            results.append(_error_result(ErrorCode.invalid_request, problem))
        else:
            wanted.append(acl)
            results.append(DONE)
        await call.throttle.checkpoint()
    try:
        acls.add(wanted)
    except StoreFailed as failed:
        lost = _error_result(ErrorCode.kafka_storage_error, str(failed))
        results = [lost if one is DONE else one for one in results]
    return {"results": results}


async def delete_acls(call: Call, request: DeleteAclsRequest) -> Values:
    """Delete the rules that each filter selects; return the deleted rules."""
    if call.node.authorizer is None:
        return {"filter_results": [{**NO_AUTHORIZER, "matching_acls": ()} for _ in request.filters]}
    results = []
    for one in request.filters:
        results.append(_delete(call, _acl_filter(one)))
        await call.throttle.checkpoint(ACL_BYTES * len(results[-1]["matching_acls"]))
    return {"filter_results": results}


def _delete(call: Call, wanted: AclFilter) -> Values:
    problem = wanted.problem()
    if problem is not None:
        return {**_error_result(ErrorCode.invalid_request, problem), "matching_acls": ()}
    assert call.node.authorizer is not None, "checked for the whole request"
    acls = call.node.authorizer.acls
    gone = [acl for acl in acls if wanted.selects(acl)]
    try:
        acls.remove(gone)
    except StoreFailed as failed:
        return {**_error_result(ErrorCode.kafka_storage_error, str(failed)), "matching_acls": ()}
    return {**DONE, "matching_acls": [_deleted(acl) for acl in gone]}


def _deleted(acl: Acl) -> Values:
    return {
        **DONE,
        "resource_type": acl.resource_type,
        "resource_name": acl.name,
        "pattern_type": acl.pattern_type,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation,
        "permission_type": acl.permission,
    }


APIS: Final = (
    Api(DESCRIBE_ACLS, "DescribeAcls", 1, 3, describe_acls),
    Api(CREATE_ACLS, "CreateAcls", 1, 3, create_acls),
    Api(DELETE_ACLS, "DeleteAcls", 1, 3, delete_acls),
)

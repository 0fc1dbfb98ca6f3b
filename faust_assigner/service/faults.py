"""Refusals as gRPC's codes, and back: one table for both ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

import grpc

from faust_assigner.service.errors import (
    BadRequest,
    Expelled,
    NotFound,
    Replaced,
    ServiceRefused,
    WrongCaller,
    WrongPhase,
)


class Unauthenticated(ServiceRefused):
    """Nobody knows who calls: no certificate, no token, or a wrong one."""


class Unserved(ServiceRefused):
    """The other end does not know the call."""

    exit_code: ClassVar[int] = 1


#: The most special first.
CODE: Final[Mapping[type[ServiceRefused], grpc.StatusCode]] = {
    Unauthenticated: grpc.StatusCode.UNAUTHENTICATED,
    Replaced: grpc.StatusCode.ALREADY_EXISTS,
    Expelled: grpc.StatusCode.ABORTED,
    Unserved: grpc.StatusCode.UNIMPLEMENTED,
    WrongCaller: grpc.StatusCode.PERMISSION_DENIED,
    WrongPhase: grpc.StatusCode.FAILED_PRECONDITION,
    NotFound: grpc.StatusCode.NOT_FOUND,
    BadRequest: grpc.StatusCode.INVALID_ARGUMENT,
}
REFUSAL: Final = {code: kind for kind, code in CODE.items()}


def code_of(error: ServiceRefused) -> grpc.StatusCode:
    """How a refusal goes over the wire."""
    return next(
        (code for kind, code in CODE.items() if isinstance(error, kind)),
        grpc.StatusCode.FAILED_PRECONDITION,
    )


def refusal(error: grpc.RpcError) -> ServiceRefused | None:
    """What the service refused; None for what another try may mend."""
    kind = REFUSAL.get(error.code())
    return None if kind is None else kind(error.details() or error.code().name)

"""Map refusals to gRPC status codes and back: one table for the client and the server."""

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
    """The caller is not authenticated: no certificate, no token, or a wrong token."""


class Unimplemented(ServiceRefused):
    """The server does not implement the call."""

    exit_code: ClassVar[int] = 1


#: Subclasses come before their base classes: :func:`code_of` takes the first match.
CODE: Final[Mapping[type[ServiceRefused], grpc.StatusCode]] = {
    Unauthenticated: grpc.StatusCode.UNAUTHENTICATED,
    Replaced: grpc.StatusCode.ALREADY_EXISTS,
    Expelled: grpc.StatusCode.ABORTED,
    Unimplemented: grpc.StatusCode.UNIMPLEMENTED,
    WrongCaller: grpc.StatusCode.PERMISSION_DENIED,
    WrongPhase: grpc.StatusCode.FAILED_PRECONDITION,
    NotFound: grpc.StatusCode.NOT_FOUND,
    BadRequest: grpc.StatusCode.INVALID_ARGUMENT,
}
REFUSAL: Final = {code: kind for kind, code in CODE.items()}


def code_of(error: ServiceRefused) -> grpc.StatusCode:
    """Return the gRPC status code of a refusal."""
    return next(
        (code for kind, code in CODE.items() if isinstance(error, kind)),
        grpc.StatusCode.FAILED_PRECONDITION,
    )


def refusal(error: grpc.RpcError) -> ServiceRefused | None:
    """Return the service's refusal; None for an error after which a retry may succeed."""
    kind = REFUSAL.get(error.code())
    return None if kind is None else kind(error.details() or error.code().name)

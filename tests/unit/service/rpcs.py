"""A fake node that records its calls, and a service's RPCs around the node."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import grpc

from faust_assigner.service.handoff import TopicPartition
from faust_assigner.service.server.admin_servicer import AdminServicer
from faust_assigner.service.server.auth import Caller
from faust_assigner.service.server.groups import Groups
from faust_assigner.service.server.servicer import ConsumerServicer

AT = TopicPartition("t", 3)
PLACE = {"topic": "t", "partition": 3}
WHO = {"consumer_name": "c", "incarnation": "i", "group": "g"}
#: The identity and the process of each call of a consumer.
OF = {"identity": "c", "incarnation": "i"}


class Aborted(Exception):
    """A call that ended with a status."""


class Context:
    """A call's context, which raises its status."""

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        """End the call."""
        raise Aborted(code, details)


class Node:
    """A node of the group ``g`` that records each call and returns the prepared answer."""

    revision = 41
    settings = SimpleNamespace(pulse_s=0.25)

    def __init__(self, answer: Any = 42) -> None:
        self.calls: list[Any] = []
        self.answer = answer
        self.orders = self.acks = self

    def __getattr__(self, name: str) -> Any:
        async def call(*given: Any, **more: Any) -> Any:
            self.calls.append((name, given, more))
            if isinstance(self.answer, BaseException):
                raise self.answer
            return self.answer

        return call


CALLER = Caller(frozenset({"c", "ops"}), is_admin=True)


def consumers(node: Node, caller: Caller = CALLER) -> ConsumerServicer:
    """Return the consumers' RPCs of a service with the groups ``g`` and ``other``."""
    groups: Any = Groups({"other": Node(), "g": node})  # type: ignore[dict-item]
    authenticator: Any = SimpleNamespace(caller=lambda context: caller)
    return ConsumerServicer(groups, authenticator)


def operators(node: Node, caller: Caller = CALLER, other: Node | None = None) -> AdminServicer:
    """Return the operators' RPCs of the same service."""
    groups: Any = Groups({"other": other or Node(), "g": node})  # type: ignore[dict-item]
    authenticator: Any = SimpleNamespace(caller=lambda context: caller)
    return AdminServicer(groups, authenticator)

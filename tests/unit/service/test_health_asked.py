"""The question for an instance's health: its role's name, its patience and its answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2

from faust_assigner.service.client import operator
from faust_assigner.service.client.operator import ROLES, health_problem, is_serving

STATUS = health_pb2.HealthCheckResponse


class Channel:
    """A connection that records its end."""

    def __init__(self, acts: list[Any]) -> None:
        self.acts = acts

    async def __aenter__(self) -> Channel:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.acts.append("closed")


async def asked(
    monkeypatch: pytest.MonkeyPatch, role: str, answer: Any, ask: Any = is_serving, **more: float
) -> tuple[Any, list[Any]]:
    """Ask for a role, and return the result and the acts."""
    acts: list[Any] = []
    channel = Channel(acts)

    def stub(of: object) -> Any:
        assert of is channel

        async def check(request: Any, *, timeout: float) -> Any:
            acts.append((request.service, timeout))
            if isinstance(answer, BaseException):
                raise answer
            return STATUS(status=answer)

        return SimpleNamespace(Check=check)

    def open_(target: str) -> Channel:
        acts.append(target)
        return channel

    monkeypatch.setattr(operator.health_pb2_grpc, "HealthStub", stub)
    access: Any = SimpleNamespace(open=open_)
    return await ask("host:7", role, access, **more), acts


@pytest.mark.parametrize(
    ("role", "name"),
    [
        ("serving", "kafka_assigner.v1.KafkaAssigner"),
        ("leader", "leader"),
        ("process", ""),
        ("readiness", "readiness"),
        ("liveness", "liveness"),
    ],
)
async def test_each_role_is_asked_by_its_name(
    monkeypatch: pytest.MonkeyPatch, role: str, name: str
) -> None:
    """A check waits two seconds unless the caller has more patience."""
    assert await asked(monkeypatch, role, STATUS.SERVING) == (
        True,
        ["host:7", (name, 2.0), "closed"],
    )
    found = await asked(monkeypatch, role, STATUS.SERVING, patience_s=0.5)
    assert found == (True, ["host:7", (name, 0.5), "closed"])
    assert len(ROLES) == 5


@pytest.mark.parametrize("status", [STATUS.NOT_SERVING, STATUS.UNKNOWN, STATUS.SERVICE_UNKNOWN])
async def test_only_an_instance_that_serves_the_role_is_well(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """Every other answer is no."""
    assert (await asked(monkeypatch, "leader", status))[0] is False


@pytest.mark.parametrize(
    "code",
    [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.NOT_FOUND],
)
async def test_an_instance_without_an_answer_is_not_well(
    monkeypatch: pytest.MonkeyPatch, code: grpc.StatusCode
) -> None:
    """The connection is closed; an error of the caller is raised."""
    none = grpc.aio.Metadata()
    error = grpc.aio.AioRpcError(code, none, none, "no")
    assert await asked(monkeypatch, "leader", error) == (
        False,
        ["host:7", ("leader", 2.0), "closed"],
    )
    with pytest.raises(KeyError):
        await asked(monkeypatch, "other", STATUS.SERVING)


def failed(code: grpc.StatusCode) -> grpc.aio.AioRpcError:
    """Return the error of a call."""
    none = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(code, none, none, "no")


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (STATUS.SERVING, None),
        (STATUS.NOT_SERVING, "the instance answered NOT_SERVING"),
        (
            failed(grpc.StatusCode.UNAVAILABLE),
            "the instance did not answer within 0.5 s: UNAVAILABLE: no",
        ),
        (
            failed(grpc.StatusCode.DEADLINE_EXCEEDED),
            "the instance did not answer within 0.5 s: DEADLINE_EXCEEDED: no",
        ),
        (failed(grpc.StatusCode.NOT_FOUND), "the instance refused the check: NOT_FOUND: no"),
    ],
)
async def test_an_instance_that_is_not_healthy_differs_from_one_without_an_answer(
    monkeypatch: pytest.MonkeyPatch, answer: Any, problem: str | None
) -> None:
    """The operator looks at the instance's log, or at the network."""
    found, _ = await asked(monkeypatch, "leader", answer, health_problem, patience_s=0.5)
    assert found == problem

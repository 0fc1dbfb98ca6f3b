"""TLS, certificates and tokens over real sockets: the channel determines the caller's name."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from faust_assigner.service.client import Access
from faust_assigner.service.client.operator import Operator, is_serving
from faust_assigner.service.errors import WrongCaller
from faust_assigner.service.faults import Unauthenticated
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from faust_assigner.service.proto.kafka_assigner_pb2_grpc import KafkaAssignerStub
from tests.support.assigning.instances import (
    QUICK,
    Consumer,
    Instance,
    calls_ended,
    consumers,
    instances,
    settled,
)
from tests.support.certificates import Authority, Pair

pytestmark = pytest.mark.processes
CANARY = "canary-77aa"


class Keys:
    """A CA, the service's certificate, and a client certificate per name."""

    def __init__(self, folder: Path) -> None:
        self._authority = Authority(folder)
        self.ca = self._authority.ca
        self.service = self._authority.sign("service")

    def flags(self) -> tuple[str, ...]:
        """The flags of the service."""
        return ("--tls-cert", str(self.service.cert), "--tls-key", str(self.service.key))

    def access(self, name: str = "", token: str = "") -> Access:
        """The access of a caller."""
        pair = self._authority.sign(name) if name else Pair(Path(), Path())
        return Access(
            ca=self.ca,
            token=token,
            cert=pair.cert if name else None,
            key=pair.key if name else None,
        )


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    """Create the certificates for this test."""
    return Keys(tmp_path)


@pytest.fixture
def with_certificates(tmp_path: Path, keys: Keys) -> Iterator[Instance]:
    """Start a service that requires certificates; ``ops`` is the administrator."""
    with instances(
        tmp_path,
        *QUICK,
        *keys.flags(),
        "--tls-client-ca",
        str(keys.ca),
        "--admins",
        "ops",
        "--topic",
        "orders=8",
    ) as (one,):
        yield one


@pytest.fixture
def with_tokens(tmp_path: Path, keys: Keys) -> Iterator[Instance]:
    """Start a service with TLS that requires tokens."""
    (tmp_path / "tokens").write_text(f"a {CANARY}\nb token-of-b\nops token-of-ops\n")
    with instances(
        tmp_path,
        *QUICK,
        *keys.flags(),
        "--tokens",
        str(tmp_path / "tokens"),
        "--admins",
        "ops",
        "--topic",
        "orders=8",
    ) as (one,):
        yield one


async def test_a_certificate_is_the_name(with_certificates: Instance, keys: Keys) -> None:
    """Two consumers share the partitions; a registration under a foreign name is refused for good."""
    target = with_certificates.target
    members = [Consumer(target, name, access=keys.access(name)) for name in "ab"]
    async with consumers(*members):
        await settled(members, [4, 4])
        thief = Consumer(target, "a", access=keys.access("c"))
        with pytest.raises(WrongCaller, match="c may not act as 'a'"):
            await thief.client.run(thief)
        await settled(members, [4, 4])
        async with Operator(target, keys.access("ops")) as operator:
            assert len((await operator.state()).consumers) == 2
        async with Operator(target, keys.access("a")) as operator:
            with pytest.raises(WrongCaller, match="not an administrator"):
                await operator.state()


@pytest.mark.slow
async def test_without_a_certificate_of_the_authority_nobody_gets_in(
    with_certificates: Instance, keys: Keys, tmp_path: Path
) -> None:
    """The handshake fails without a certificate, with a foreign certificate, and without TLS."""
    target = with_certificates.target
    stranger = Authority(tmp_path, "stranger").sign("a")
    for access in (
        keys.access(),
        Access(),
        Access(ca=keys.ca, cert=stranger.cert, key=stranger.key),
    ):
        async with access.open(target) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await KafkaAssignerStub(channel).Heartbeat(
                    pb.HeartbeatRequest(consumer_name="a"), timeout=5
                )
            assert raised.value.code() == grpc.StatusCode.UNAVAILABLE
    await calls_ended()


async def test_a_token_is_the_name(with_tokens: Instance, keys: Keys) -> None:
    """Every call compares the token's name with the name in the request."""
    target = with_tokens.target
    members = [
        Consumer(target, "a", access=keys.access(token=CANARY)),
        Consumer(target, "b", access=keys.access(token="token-of-b")),
    ]
    async with consumers(*members):
        await settled(members, [4, 4])
        at = pb.TopicPartition(topic="orders", partition=0)
        requests = {
            "Heartbeat": pb.HeartbeatRequest,
            "PartitionReady": pb.PartitionReadyRequest,
            "PartitionReleased": pb.PartitionReleasedRequest,
            "WarmFailed": pb.WarmFailedRequest,
            "ReportProgress": pb.ReportProgressRequest,
            "ReportReplicas": pb.ReportReplicasRequest,
            "Deregister": pb.DeregisterRequest,
        }
        async with keys.access().open(target) as channel:
            stub = KafkaAssignerStub(channel)
            for method, request in requests.items():
                body = request(consumer_name="a")
                if "partition" in request.DESCRIPTOR.fields_by_name:
                    body.partition.CopyFrom(at)
                for token, code in (
                    ("token-of-b", grpc.StatusCode.PERMISSION_DENIED),
                    ("wrong", grpc.StatusCode.UNAUTHENTICATED),
                ):
                    with pytest.raises(grpc.aio.AioRpcError) as raised:
                        await getattr(stub, method)(
                            body, metadata=(("authorization", f"Bearer {token}"),), timeout=5
                        )
                    assert raised.value.code() == code, method
        await settled(members, [4, 4])


@pytest.mark.slow
async def test_who_has_no_token_is_told_and_does_not_try_again(
    with_tokens: Instance, keys: Keys
) -> None:
    """The health check needs no token, as probes have none."""
    for token in ("", "wrong"):
        one = Consumer(with_tokens.target, "a", access=keys.access(token=token))
        with pytest.raises(Unauthenticated):
            await asyncio.wait_for(one.client.run(one), 20)
    assert await is_serving(with_tokens.target, "serving", keys.access())
    await calls_ended()


@pytest.mark.slow
async def test_no_token_is_in_the_log(with_tokens: Instance, keys: Keys) -> None:
    """Neither valid nor rejected tokens are logged."""
    member = Consumer(with_tokens.target, "a", access=keys.access(token=CANARY))
    async with consumers(member):
        await settled([member], [8])
    thief = Consumer(with_tokens.target, "a", access=keys.access(token="tried-5521"))
    with pytest.raises(Unauthenticated):
        await thief.client.run(thief)
    await calls_ended()
    assert with_tokens.stop() == 0
    assert CANARY not in with_tokens.said
    assert "tried-5521" not in with_tokens.said

"""KEDA's calls over a real channel: answers, refusals, and the end of streams."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from faust_assigner.errors import ConfigError, TryAgain
from faust_assigner.scaler import servicer
from faust_assigner.scaler.proto import externalscaler_pb2 as pb
from faust_assigner.scaler.proto.externalscaler_pb2_grpc import ExternalScalerStub
from faust_assigner.scaler.server import SERVICE, Listening, ScalerServer
from faust_assigner.scaler.settings import Settings
from tests.support.certificates import Authority
from tests.support.waiting import PATIENCE_S
from tests.unit.scaler.test_recommender import Shop

INVALID, AWAY = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNAVAILABLE


@pytest.fixture
def shop() -> Shop:
    """The group behind the scaler."""
    return Shop()


@contextlib.asynccontextmanager
async def asking(shop: Shop) -> AsyncIterator[Any]:
    """A client of a server on loopback; both end before the test ends."""
    listening = Listening(host="127.0.0.1", port=0)
    server = ScalerServer(shop.recommender(), listening, {"min": "2"})
    port = await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield ExternalScalerStub(channel)
    await server.stop()


def ref(**metadata: str) -> pb.ScaledObjectRef:
    """Return a ScaledObject of the group."""
    return pb.ScaledObjectRef(
        name="shop", namespace="prod", scalerMetadata={"group": "shop", **metadata}
    )


async def refusal(call: Any) -> tuple[grpc.StatusCode, str]:
    """Return the (code, text) of a failed call."""
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return refused.value.code(), str(refused.value.details())


async def test_the_metric_over_its_target_is_the_size(shop: Shop) -> None:
    """Kubernetes runs ceil(metric / target) pods: both fields of both messages agree."""
    async with asking(shop) as stub:
        [spec] = (await stub.GetMetricSpec(ref(), timeout=PATIENCE_S)).metricSpecs
        asked = pb.GetMetricsRequest(scaledObjectRef=ref(), metricName=spec.metricName)
        [value] = (await stub.GetMetrics(asked, timeout=PATIENCE_S)).metricValues
        assert (spec.targetSize, spec.targetSizeFloat) == (1, 1.0)
        assert (value.metricName, value.metricValue, value.metricValueFloat) == (
            spec.metricName,
            3,
            3.0,
        )


async def test_a_bad_key_is_refused_by_its_name_in_each_call(shop: Shop) -> None:
    """Calls without a look are refused too."""
    async with asking(shop) as stub:
        bad = ref(maximum="3")
        stream = stub.StreamIsActive(bad, timeout=PATIENCE_S)
        for call in (
            stub.IsActive(bad, timeout=PATIENCE_S),
            stub.GetMetricSpec(bad, timeout=PATIENCE_S),
            stub.GetMetrics(pb.GetMetricsRequest(scaledObjectRef=bad), timeout=PATIENCE_S),
            stream.read(),
        ):
            code, text = await refusal(call)
            assert code == INVALID
            assert "'maximum': unknown key" in text


async def test_another_metric_is_refused(shop: Shop) -> None:
    """The only metric is ``workers``."""
    async with asking(shop) as stub:
        asked = pb.GetMetricsRequest(scaledObjectRef=ref(), metricName="lag")
        assert (await refusal(stub.GetMetrics(asked, timeout=PATIENCE_S)))[0] == INVALID


@pytest.mark.parametrize("metadata", [{}, {"group": "other"}])
async def test_another_group_is_refused(shop: Shop, metadata: dict[str, str]) -> None:
    """Otherwise our load would scale another group's workers."""
    async with asking(shop) as stub:
        asked = pb.ScaledObjectRef(name="x", scalerMetadata=metadata)
        code, text = await refusal(stub.IsActive(asked, timeout=PATIENCE_S))
        assert code == INVALID
        assert text.startswith("group: ")


async def test_a_group_that_is_away_is_unavailable(shop: Shop) -> None:
    """KEDA then uses the fallback."""
    async with asking(shop) as stub:
        shop.error = TryAgain("no broker answers")
        code, text = await refusal(stub.IsActive(ref(), timeout=PATIENCE_S))
        assert code == AWAY
        assert "no broker answers" in text


async def test_a_message_that_is_too_large_is_refused(shop: Shop) -> None:
    """The message is not parsed."""
    async with asking(shop) as stub:
        code, _ = await refusal(stub.IsActive(ref(min="9" * 100_000), timeout=PATIENCE_S))
        assert code == grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_stream_sends_changes_alone_and_ends_with_its_call(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first answer comes at once; no answer comes while the state is the same."""
    async with asking(shop) as stub:
        monkeypatch.setattr(servicer, "STREAM_S", 0.02)
        stream = stub.StreamIsActive(ref(), timeout=PATIENCE_S)
        assert (await stream.read()).result
        reading = asyncio.ensure_future(stream.read())
        done, _ = await asyncio.wait([reading], timeout=0.3)
        assert not done
        stream.cancel()
        await asyncio.wait([reading])


async def test_a_stream_begins_with_the_state_of_a_sleeping_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The autoscaler must know of the sleep before the group wakes."""
    monkeypatch.setattr(servicer, "STREAM_S", 0.0)
    states = iter((False, False, True, True, False))

    class Sleeper:
        """A recommender of a group that sleeps, wakes and sleeps again."""

        group_id = "shop"

        async def recommendation(self, asker: str, settings: Settings) -> Any:
            return SimpleNamespace(is_active=next(states))

    recommender: Any = Sleeper()
    context: Any = None
    stream: Any = servicer.ExternalScaler(recommender, {}).StreamIsActive(ref(), context)
    async with contextlib.aclosing(stream):
        assert [(await anext(stream)).result for _ in range(3)] == [False, True, False]


async def test_streams_are_bounded(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ended stream frees its place."""
    async with asking(shop) as stub:
        monkeypatch.setattr(servicer, "MOST_STREAMS", 1)
        monkeypatch.setattr(servicer, "STREAM_S", 0.02)
        first = stub.StreamIsActive(ref(), timeout=PATIENCE_S)
        assert (await first.read()).result
        second = stub.StreamIsActive(ref(), timeout=PATIENCE_S)
        assert (await refusal(second.read()))[0] == grpc.StatusCode.RESOURCE_EXHAUSTED
        first.cancel()
        end = asyncio.get_running_loop().time() + PATIENCE_S
        while asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.02)
            third = stub.StreamIsActive(ref(), timeout=PATIENCE_S)
            try:
                assert (await third.read()).result
            except grpc.aio.AioRpcError:
                continue
            third.cancel()
            return
        raise AssertionError("the first stream was never let go")


@pytest.mark.parametrize(
    ("listening", "words"),
    [
        ({"host": "0.0.0.0"}, "is not loopback"),
        ({"host": "::"}, "is not loopback"),
        ({"host": "127.0.0.1", "cert": "x"}, "require each other"),
        ({"host": "127.0.0.1", "client_ca": "x"}, "requires --tls-cert"),
        ({"host": "127.0.0.1", "cert": "x", "key": "x"}, "cannot be read as PEM"),
    ],
)
def test_an_address_for_others_needs_tls(listening: dict[str, Any], words: str) -> None:
    """A public address needs TLS or the ``insecure`` setting."""
    with pytest.raises(ConfigError, match=words):
        Listening(port=0, **listening).check_options()
    Listening(host="0.0.0.0", port=0, insecure=True).check_options()
    Listening(host="localhost", port=0).check_options()


async def test_an_address_that_is_taken_is_an_error(shop: Shop) -> None:
    """No second listener gets the port."""
    first = ScalerServer(shop.recommender(), Listening(host="127.0.0.1", port=0))
    port = await first.start()
    second = ScalerServer(shop.recommender(), Listening(host="127.0.0.1", port=port))
    with pytest.raises(OSError, match="cannot listen on"):
        await second.start()
    await first.stop()
    await second.stop()


async def test_with_tls_a_caller_needs_the_authority_and_a_certificate(
    shop: Shop, tmp_path: Path
) -> None:
    """The settings are KEDA's caCert, tlsClientCert and tlsClientKey."""
    authority = Authority(tmp_path, "ca")
    own, caller = authority.sign("scaler"), authority.sign("keda")
    listening = Listening(
        host="127.0.0.1", port=0, cert=own.cert, key=own.key, client_ca=authority.ca
    )
    listening.check_options()
    server = ScalerServer(shop.recommender(), listening)
    port = await server.start()

    async def answer(*pair: bytes) -> bool:
        credentials = grpc.ssl_channel_credentials(authority.ca.read_bytes(), *pair)
        async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials) as channel:
            return bool(
                (await ExternalScalerStub(channel).IsActive(ref(), timeout=PATIENCE_S)).result
            )

    assert await answer(caller.key.read_bytes(), caller.cert.read_bytes())
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await answer()
    assert refused.value.code() == AWAY
    await server.stop()


async def test_a_renewed_certificate_counts_from_the_next_connection_on(
    shop: Shop, tmp_path: Path
) -> None:
    """The certificates of an authority such as cert-manager live for some months."""
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    own = old.sign("scaler")
    listening = Listening(host="127.0.0.1", port=0, cert=own.cert, key=own.key)
    server = ScalerServer(shop.recommender(), listening)
    port = await server.start()

    async def answer(authority: Authority) -> bool:
        credentials = grpc.ssl_channel_credentials(authority.ca.read_bytes())
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, options) as channel:
            return bool(
                (await ExternalScalerStub(channel).IsActive(ref(), timeout=PATIENCE_S)).result
            )

    assert await answer(old)
    new.sign("scaler")
    assert await answer(new)
    with pytest.raises(grpc.aio.AioRpcError):
        await answer(old)
    await server.stop()


async def test_a_metric_without_a_name_is_the_only_one(shop: Shop) -> None:
    """Older versions of KEDA send no name."""
    async with asking(shop) as stub:
        asked = pb.GetMetricsRequest(scaledObjectRef=ref())
        [value] = (await stub.GetMetrics(asked, timeout=PATIENCE_S)).metricValues
        assert value.metricValue == 3


async def test_scaled_objects_of_one_name_in_two_namespaces_are_two(shop: Shop) -> None:
    """A name's control characters are not logged."""
    scaler = servicer.ExternalScaler(recommender := shop.recommender(), {})
    for namespace in ("prod", "test\n"):
        one = ref()
        one.namespace = namespace
        await scaler._ask(one)
    assert list(recommender._askers) == ["prod/shop", "test?/shop"]
    await recommender.close()


async def test_the_health_of_the_server_and_of_the_service_is_told_until_it_stops(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both statuses are served; a stopping server refuses calls and cancels its look."""
    monkeypatch.setattr("faust_assigner.scaler.server.STOP_GRACE_S", 30.0)
    before = asyncio.all_tasks()
    recommender = shop.recommender()
    server = ScalerServer(recommender, Listening(host="127.0.0.1", port=0))
    port = await server.start()
    serving = health_pb2.HealthCheckResponse.SERVING
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for role in ("", SERVICE):
            asked = health_pb2.HealthCheckRequest(service=role)
            assert (await health.Check(asked, timeout=PATIENCE_S)).status == serving
        watch = health.Watch(health_pb2.HealthCheckRequest(service=SERVICE), timeout=PATIENCE_S)
        assert (await watch.read()).status == serving
        shop.is_slow = True
        looking = asyncio.create_task(recommender.recommendation("a", Settings()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        stopping = asyncio.create_task(server.stop())
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        watch.cancel()
        await stopping
    assert recommender._looking is not None
    assert recommender._looking.cancelled()
    with contextlib.suppress(asyncio.CancelledError):
        await looking
    if handlers := asyncio.all_tasks() - before:  # gRPC ends the cancelled watch in a later turn
        await asyncio.wait(handlers, timeout=PATIENCE_S)


def test_a_key_without_its_certificate_is_refused() -> None:
    """A certificate without its key is refused too; IPv6 addresses have brackets."""
    with pytest.raises(ConfigError, match="require each other"):
        Listening(host="127.0.0.1", port=0, key=Path("x")).check_options()
    assert Listening(host="::1", port=7).address == "[::1]:7"


async def test_a_request_that_is_no_message_is_refused_as_invalid(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """Earlier the status was UNKNOWN, with a traceback in the log for each request."""
    server = ScalerServer(shop.recommender(), Listening(host="127.0.0.1", port=0))
    port = await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        for name in ("IsActive", "StreamIsActive", "GetMetricSpec", "GetMetrics"):
            kind = channel.unary_stream if name.startswith("Stream") else channel.unary_unary
            call = kind(f"/{SERVICE}/{name}")(b"\xff\xff\xff", timeout=PATIENCE_S)
            code, text = await refusal(call.read() if name.startswith("Stream") else call)
            assert (code, text) == (
                INVALID,
                f"the request of /{SERVICE}/{name} is not a valid message",
            )
    await server.stop()
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.slow
async def test_the_connection_of_a_silent_peer_is_closed(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node of an operator lost its power: its streams must not count for two hours."""
    monkeypatch.setattr("faust_assigner.scaler.server.PING_S", 1.0)
    server = ScalerServer(shop.recommender(), Listening(host="127.0.0.1", port=0))
    port = await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    no_settings = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
    # Without this acknowledgement gRPC closes every connection after a minute.
    acknowledged = b"\x00\x00\x00\x04\x01\x00\x00\x00\x00"
    writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + no_settings + acknowledged)
    async with asyncio.timeout(60.0):
        await reader.read()  # until the server closes the connection
    writer.close()
    await server.stop()

"""The certificates for etcd are read again when their files change; running calls continue."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from faust_assigner.errors import ConfigError
from faust_assigner.service.store import access
from faust_assigner.service.store.access import EtcdAccess
from faust_assigner.service.store.base import Batch
from faust_assigner.service.store.etcd import EtcdStore
from faust_assigner.service.store.etcd_api import etcd_pb2 as pb
from tests.support.assigning.instances import calls_ended
from tests.support.certificates import Authority, Pair

PATIENCE_S = 20.0


class _Etcd(grpc.GenericRpcHandler):
    """Records the certificate of each call; a watch gets an event whenever ``changed`` is set."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.changed = asyncio.Event()

    def service(self, handler_call_details: Any) -> Any:
        if handler_call_details.method.endswith("Watch"):
            return grpc.stream_stream_rpc_method_handler(
                self._watch, pb.WatchRequest.FromString, pb.WatchResponse.SerializeToString
            )
        return grpc.unary_unary_rpc_method_handler(
            self._range, pb.RangeRequest.FromString, pb.RangeResponse.SerializeToString
        )

    def _note(self, context: Any) -> None:
        self.seen.append(context.auth_context()["x509_common_name"][0].decode())

    async def _range(self, request: Any, context: Any) -> Any:
        self._note(context)
        return pb.RangeResponse()

    async def _watch(self, requests: Any, context: Any) -> AsyncIterator[Any]:
        self._note(context)
        yield pb.WatchResponse(created=True)
        for revision in (1, 2):
            await self.changed.wait()
            self.changed.clear()
            event = pb.Event(kv=pb.KeyValue(key=b"/g/a", mod_revision=revision))
            yield pb.WatchResponse(events=[event])
        await asyncio.Event().wait()


@contextlib.asynccontextmanager
async def etcd_of(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[EtcdStore, _Etcd, Pair, Authority]]:
    """Yield a store that checks its files before each call, its etcd, its pair and the CA."""
    monkeypatch.setattr(access, "LOOK_S", 0.0)
    authority, etcd, server = Authority(folder), _Etcd(), grpc.aio.server()
    own, pair = authority.sign("etcd"), authority.sign("one")
    credentials = grpc.ssl_server_credentials(
        [(own.key.read_bytes(), own.cert.read_bytes())],
        authority.ca.read_bytes(),
        require_client_auth=True,
    )
    server.add_generic_rpc_handlers((etcd,))
    port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    store = EtcdStore(
        EtcdAccess(
            endpoints=(f"https://127.0.0.1:{port}",),
            ca=authority.ca,
            certificate=pair.cert,
            key=pair.key,
        )
    )
    try:
        yield store, etcd, pair, authority
    finally:
        await store.close()
        await server.stop(None)
        await calls_ended()


async def test_the_next_call_shows_the_certificate_that_replaced_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a new certificate beside the old key, the store still presents the first pair."""
    async with etcd_of(tmp_path, monkeypatch) as (store, etcd, pair, authority):
        await store.get("/g/a")
        two = authority.sign("two")
        shutil.copy(two.cert, pair.cert)
        await store.get("/g/a")
        shutil.copy(two.key, pair.key)
        await store.get("/g/a")
        assert etcd.seen == ["one", "one", "two"]


async def test_a_watch_outlives_the_exchange_of_its_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection stays open until the watch ends."""
    async with etcd_of(tmp_path, monkeypatch) as (store, etcd, pair, authority):
        watch = store.watch("/g/", 1)

        async def next_batch() -> Batch:
            etcd.changed.set()
            return await asyncio.wait_for(anext(watch), PATIENCE_S)

        first = await next_batch()
        two = authority.sign("two")
        shutil.copy(two.cert, pair.cert)
        shutil.copy(two.key, pair.key)
        await store.get("/g/a")
        second = await next_batch()
        assert (first.revision, second.revision, etcd.seen) == (1, 2, ["one", "two"])
        (closing,) = store._calls._connections._retired.values()
        await watch.aclose()  # type: ignore[attr-defined]
        await asyncio.wait_for(closing, PATIENCE_S)
        assert not store._calls._connections._retired


def test_a_file_without_certificates_is_refused_by_its_flag(tmp_path: Path) -> None:
    """The error comes before any connection."""
    words = tmp_path / "words.pem"
    words.write_text("words")
    with pytest.raises(ConfigError, match="--etcd-ca"):
        EtcdStore(EtcdAccess(endpoints=("https://127.0.0.1:1",), ca=words))

"""etcd with authentication: tokens that expire before the service ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from faust_assigner.service.errors import StoreError
from faust_assigner.service.store.access import EtcdAccess
from faust_assigner.service.store.base import Put
from faust_assigner.service.store.etcd import EtcdStore
from tests.support.etcd import EtcdServer, etcd_server

pytestmark = [pytest.mark.processes, pytest.mark.slow]
ROOT = ("--user", "root:secret")


@pytest.fixture
def signing(tmp_path: Path) -> Iterator[EtcdServer]:
    """Start an etcd with authentication and signed tokens."""
    key = rsa.generate_private_key(public_exponent=65_537, key_size=2048)
    private, public = tmp_path / "jwt.key", tmp_path / "jwt.pub"
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    public.write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    token = f"jwt,pub-key={public},priv-key={private},sign-method=RS256,ttl=10m"
    with etcd_server(options=("--auth-token", token, "--bcrypt-cost", "4")) as server:
        server.tool("user", "add", "root:secret")
        server.tool("user", "grant-role", "root", "root")
        server.tool("auth", "enable")
        yield server


async def test_authentication_is_turned_on_and_off_under_a_running_instance() -> None:
    """Without authentication every call failed, and switching it on needed an outage."""
    with etcd_server(options=("--bcrypt-cost", "4")) as server:
        access = EtcdAccess(endpoints=(server.endpoint,), user="root", password="secret")
        store = EtcdStore(access)
        assert await store.get("/a") is None
        lease = await store.grant(60.0)
        server.tool("user", "add", "root:secret")
        server.tool("user", "grant-role", "root", "root")
        server.tool("auth", "enable")
        with pytest.raises(StoreError, match="user name is empty"):
            await store.get("/a")
        assert await store.get("/a") is None
        assert await store.keep_alive(lease.lease_id) > 0
        server.tool(*ROOT, "auth", "disable")
        with pytest.raises(StoreError, match="invalid auth token"):
            await store.get("/a")
        assert await store.get("/a") is None
        assert (await store.txn([], [Put("/a", b"1")])).succeeded
        await store.close()


async def test_a_change_of_etcds_users_costs_one_refusal(signing: EtcdServer) -> None:
    """The change outdates each signed token; the next call requests a new token."""
    access = EtcdAccess(endpoints=(signing.endpoint,), user="root", password="secret")
    store = EtcdStore(access)
    assert await store.get("/a") is None
    signing.tool(*ROOT, "user", "add", "w1:other")
    with pytest.raises(StoreError, match="is old"):
        await store.get("/a")
    assert await store.get("/a") is None
    await store.close()

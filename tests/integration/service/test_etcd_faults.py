"""The service while its etcd is killed, stopped, full, compacted, restored or closed."""

from __future__ import annotations

import asyncio
import logging
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from faust_assigner.errors import ConfigError
from faust_assigner.service.errors import QuotaExceeded, StoreError, StoreUnavailable
from faust_assigner.service.records import Ended
from faust_assigner.service.server.options import Options
from faust_assigner.service.server.serve import running
from faust_assigner.service.store import access
from faust_assigner.service.store.access import EtcdAccess
from faust_assigner.service.store.base import Put
from faust_assigner.service.store.etcd import EtcdStore, loses_leases
from tests.support.assigning.consumers import Bench, eventually
from tests.support.assigning.instances import calls_ended
from tests.support.certificates import Authority
from tests.support.etcd import EtcdServer, etcd_server, installed

pytestmark = [pytest.mark.processes, pytest.mark.slow]


@pytest.fixture(params=sorted(installed()))
def own_etcd(request: pytest.FixtureRequest) -> Iterator[EtcdServer]:
    """Start an etcd for one test, of each installed version; the test may damage it."""
    program = installed()[request.param]
    with etcd_server(options=("--quota-backend-bytes", str(4 << 20)), program=program) as server:
        yield server


def opener(server: EtcdServer) -> EtcdStore:
    """Open a connection to this etcd."""
    return EtcdStore(EtcdAccess(endpoints=(server.endpoint,), deadline_s=1.0))


async def grown(b: Bench, server: EtcdServer) -> None:
    """Start two instances with a consumer each, and assign six partitions."""
    node, other = await b.node({"t": 6}, store=opener(server)), await b.node(store=opener(server))
    await b.consumer(node, "a")
    await b.consumer(other, "b")
    await b.settles(3, 3)


async def closed(b: Bench) -> None:
    """Close the connections that the test opened."""
    for node in b.nodes:
        await node._mirror._store.close()


async def reconnecting(b: Bench) -> None:
    """Register each consumer again whose stream has ended, as clients do."""
    for helper in b.helpers:
        while helper.ended in (Ended.LEASE_LOST, Ended.REPLACED) or helper._task is None:
            await helper.disconnect()
            try:
                await helper.connect()
                helper.ended = None
            except StoreError:
                await asyncio.sleep(0.2)


async def test_etcd_killed_and_started_again(own_etcd: EtcdServer) -> None:
    """A short outage moves no partition; a longer outage fences all, and all return and converge."""
    async with Bench(lambda: opener(own_etcd)) as b:
        await grown(b, own_etcd)
        before = b.owners()
        own_etcd.kill()
        await asyncio.sleep(0.5)
        own_etcd.start()
        await asyncio.sleep(2.0)
        await reconnecting(b)
        await b.settles(3, 3)
        assert b.owners() == before
        own_etcd.kill()
        await eventually(lambda: not any(node.leads for node in b.nodes), "all fenced")
        await eventually(lambda: all(h.ended is Ended.LEASE_LOST for h in b.helpers))
        own_etcd.start()
        await reconnecting(b)
        await b.settles(3, 3)
        await eventually(lambda: sum(node.leads for node in b.nodes) == 1)
    await closed(b)


async def test_etcd_that_hangs_is_noticed_by_deadlines(own_etcd: EtcdServer) -> None:
    """SIGSTOP: calls end at their deadline, and the leader fences itself until etcd continues."""
    async with Bench(lambda: opener(own_etcd)) as b:
        await grown(b, own_etcd)
        own_etcd.send(signal.SIGSTOP)
        with pytest.raises(StoreUnavailable):
            await b.nodes[0]._mirror._store.get("/x")
        await eventually(lambda: not any(node.leads for node in b.nodes))
        own_etcd.send(signal.SIGCONT)
        await reconnecting(b)
        await eventually(lambda: sum(node.leads for node in b.nodes) == 1)
        await reconnecting(b)
        await b.settles(3, 3)
    await closed(b)


async def test_etcd_compacted_again_and_again(own_etcd: EtcdServer) -> None:
    """Consumers join between the compactions, and the epochs' base stays the same."""
    async with Bench(lambda: opener(own_etcd)) as b:
        await grown(b, own_etcd)
        admin = opener(own_etcd)
        before = await admin.get("/g/epochs/base")
        for number in range(3):
            await admin.compact((await admin.list("/")).revision)
            helper = await b.consumer(b.nodes[number % 2], f"x{number}")
            await eventually(lambda helper=helper: helper.owned)  # type: ignore[misc]
        await b.settles(2, 1, 1, 1, 1)
        assert await admin.get("/g/epochs/base") == before, "nobody takes that for another past"
        await admin.close()
    await closed(b)


async def test_etcd_restored_to_an_older_revision_is_listed_anew(
    own_etcd: EtcdServer, tmp_path: Path
) -> None:
    """Instances list etcd anew after a restore, and assign epochs above all earlier epochs."""
    async with Bench(lambda: opener(own_etcd)) as b:
        await grown(b, own_etcd)
        own_etcd.tool("snapshot", "save", str(tmp_path / "snapshot"))
        for number in range(4):
            await b.nodes[0].set_topic(f"lost{number}", 1)
        await b.consumer(b.nodes[0], "c")
        await b.settles(4, 3, 3)
        told = {at: epoch for helper in b.helpers for at, epoch in helper.owned.items()}
        before = [node._mirror.revision for node in b.nodes]
        own_etcd.restore(tmp_path / "snapshot")
        await eventually(
            lambda: all(
                node._mirror.revision < was for node, was in zip(b.nodes, before, strict=True)
            ),
            "listed anew",
        )
        await reconnecting(b)
        await eventually(lambda: sum(node.leads for node in b.nodes) == 1)
        await reconnecting(b)
        await b.settles(2, 2, 2)
        assert all(epoch > told[at] for helper in b.helpers for at, epoch in helper.owned.items())
        admin = opener(own_etcd)
        await eventually_equal(b, admin)
        # An operator sets the base if no instance ran during the restore.
        own_etcd.tool("put", "/g/epochs/base", '{"base": 5000000}')
        await eventually(
            lambda: all(
                epoch > 5_000_000 for helper in b.helpers for epoch in helper.owned.values()
            )
        )
        await b.settles(2, 2, 2)
        await admin.close()
    await closed(b)


async def eventually_equal(b: Bench, admin: EtcdStore) -> None:
    """Wait until every instance's copy equals etcd's keys."""
    async with asyncio.timeout(30):
        while True:
            truth = {kv.key: kv.value for kv in (await admin.list("/g/")).items}
            if all(
                {kv.key: kv.value for kv in node._mirror.view.raw.values()} == truth
                for node in b.nodes
            ):
                return
            await asyncio.sleep(0.1)


async def test_etcd_over_its_quota_is_read_and_not_written(own_etcd: EtcdServer) -> None:
    """Reads work, a write raises QuotaExceeded, and writes work again after a clean-up."""
    async with Bench(lambda: opener(own_etcd)) as b:
        await grown(b, own_etcd)
        admin = opener(own_etcd)
        with pytest.raises(QuotaExceeded):
            await filled(admin)
        assert (await admin.list("/g/assignments/")).items
        own_etcd.tool("del", "--prefix", "/fill/")
        await admin.compact((await admin.list("/g/")).revision)
        own_etcd.tool("defrag")
        own_etcd.tool("alarm", "disarm")
        await reconnecting(b)
        await b.consumer(b.nodes[0], "c")
        await reconnecting(b)
        await b.settles(2, 2, 2)
        await admin.close()
    await closed(b)


async def filled(store: EtcdStore) -> None:
    """Write until the quota refuses a write."""
    for number in range(100):
        await store.txn([], [Put(f"/fill/{number}", b"x" * 200_000)])


async def test_a_leader_whose_lease_is_revoked_leads_no_more(own_etcd: EtcdServer) -> None:
    """An operator revokes the lease; a new leader is elected."""
    async with Bench(lambda: opener(own_etcd)) as b:
        await grown(b, own_etcd)
        leader = await b.nodes[0].overview.leader()
        assert leader is not None
        own_etcd.tool("lease", "revoke", f"{leader.lease_id:x}")
        await eventually(
            lambda: (
                (b.nodes[0]._mirror.view.leader or leader) != leader
                and b.nodes[0]._mirror.view.leader.value.lease_id != leader.lease_id
            )
        )
        await eventually(lambda: sum(node.leads for node in b.nodes) == 1)
        await b.settles(3, 3)
    await closed(b)


async def test_the_next_endpoint_is_tried_where_one_does_not_answer(own_etcd: EtcdServer) -> None:
    """The first of the two endpoints has no listener."""
    store = EtcdStore(EtcdAccess(endpoints=("127.0.0.1:1", own_etcd.endpoint), deadline_s=1.0))
    with pytest.raises(StoreUnavailable):
        await store.get("/x")
    assert await store.get("/x") is None
    assert (await store.version()).startswith("3.")
    await store.close()


async def test_an_instance_warns_of_an_etcd_that_may_end_living_registrations(
    own_etcd: EtcdServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Only releases with this fault cause the warning."""
    store = EtcdStore(EtcdAccess(endpoints=(own_etcd.endpoint,)))
    version = await store.version()
    await store.close()
    caplog.set_level(logging.WARNING)
    options = {"bind": "127.0.0.1:0", "etcd": f"http://{own_etcd.endpoint}", "topic": ["t=1"]}
    async with running(Options.read(options, {})):
        pass
    told = [line for line in caplog.messages if "registrations of living consumers" in line]
    assert [version in line for line in told] == [True] * loses_leases(version)
    await calls_ended()


async def test_a_user_and_its_password(own_etcd: EtcdServer) -> None:
    """Without the correct password each call fails; an expired token is renewed by the client."""
    for command in (
        ("user", "add", "root:pw"),
        ("user", "grant-role", "root", "root"),
        ("auth", "enable"),
    ):
        own_etcd.tool(*command)
    nobody = EtcdStore(EtcdAccess(endpoints=(own_etcd.endpoint,)))
    wrong = EtcdStore(EtcdAccess(endpoints=(own_etcd.endpoint,), user="root", password="no"))
    right = EtcdStore(EtcdAccess(endpoints=(own_etcd.endpoint,), user="root", password="pw"))
    for store in (nobody, wrong):
        with pytest.raises(StoreError):
            await store.txn([], [Put("/x", b"1")])
    revision = (await right.txn([], [Put("/x", b"1")])).revision
    right._calls._token = "expired"
    with pytest.raises(StoreError):
        await right.get("/x")
    kv = await right.get("/x")
    assert kv is not None
    assert kv.mod_revision == revision
    assert "pw" not in repr(right._calls._access)
    for store in (nobody, wrong, right):
        await store.close()


async def test_mutual_tls(tmp_path: Path) -> None:
    """etcd answers only to a client that has our certificate and trusts our CA."""
    authority = Authority(tmp_path)
    server, client = authority.sign("server"), authority.sign("client")
    options = [
        "--cert-file",
        str(server.cert),
        "--key-file",
        str(server.key),
        "--client-cert-auth",
        "--trusted-ca-file",
        str(authority.ca),
    ]
    ca, certificate, key = authority.ca, client.cert, client.key
    with etcd_server(options=options, scheme="https") as etcd:
        endpoints = (f"https://{etcd.endpoint}",)
        right = EtcdStore(EtcdAccess(endpoints=endpoints, ca=ca, certificate=certificate, key=key))
        assert (await right.version()).startswith("3.")
        for poor in (EtcdAccess(endpoints=endpoints, ca=ca), EtcdAccess(endpoints=endpoints)):
            store = EtcdStore(poor)
            with pytest.raises(StoreUnavailable):
                await store.version()
            await store.close()
        await right.close()


async def test_a_client_certificate_that_is_exchanged_is_used_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """etcd refuses the first certificate, and accepts its replacement."""
    monkeypatch.setattr(access, "LOOK_S", 0.0)
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    server, wrong, right = authority.sign("server"), stranger.sign("client"), authority.sign("new")
    options = ["--cert-file", str(server.cert), "--key-file", str(server.key)]
    options += ["--client-cert-auth", "--trusted-ca-file", str(authority.ca)]
    with etcd_server(options=options, scheme="https") as etcd:
        store = EtcdStore(
            EtcdAccess(
                endpoints=(f"https://{etcd.endpoint}",),
                ca=authority.ca,
                certificate=wrong.cert,
                key=wrong.key,
            )
        )
        with pytest.raises(StoreUnavailable):
            await store.version()
        shutil.copy(right.key, wrong.key)
        shutil.copy(right.cert, wrong.cert)
        assert (await store.version()).startswith("3.")
        await store.close()


def test_access_that_contradicts_itself_is_refused() -> None:
    """The error comes before any connection."""
    for wrong in (
        {"endpoints": ()},
        {"endpoints": ("a:1",), "certificate": Path("x")},
        {"endpoints": ("http://a:1", "https://b:1")},
    ):
        with pytest.raises(ConfigError):
            EtcdAccess(**wrong)  # type: ignore[arg-type]

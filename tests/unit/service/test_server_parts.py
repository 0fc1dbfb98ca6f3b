"""The parts of an instance: metrics by group, health by role, Kafka's counts, and options."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from aiokafka.protocol.metadata import MetadataRequest_v5
from grpc_health.v1 import health_pb2

from faust_assigner.service.errors import StoreError, StoreUnavailable
from faust_assigner.service.server import discovery, serve
from faust_assigner.service.server import metrics as metrics_module
from faust_assigner.service.server.auth import (
    CertificateAuthenticator,
    NoAuthentication,
    TokenAuthenticator,
)
from faust_assigner.service.server.discovery import KafkaTopics
from faust_assigner.service.server.groups import Groups
from faust_assigner.service.server.health import LEADS, LIVES, READY, SERVES, Health
from faust_assigner.service.server.metrics import PrometheusMetrics
from faust_assigner.service.server.options import Options
from faust_assigner.service.store.etcd import EtcdStore
from faust_assigner.service.store.memory import MemoryStore

# -- metrics


def value(metrics: PrometheusMetrics, name: str, **labels: str) -> float | None:
    """Return a sample of the instance's registry."""
    return metrics.registry.get_sample_value(f"faust_assigner_service_{name}", labels)


def test_each_fact_of_an_instance_has_its_own_metric() -> None:
    """Each value appears only in its own metric."""
    metrics = PrometheusMetrics()
    metrics.leading(True)
    metrics.streams(2)
    metrics.stuck(3)
    metrics.rebalanced(4, 0.02)
    metrics.rebalanced(5, 0.3)
    metrics.stream_resynced("c")
    metrics.holdings_repaired()
    metrics.holdings_repaired()
    metrics.handoffs({"Warming": [7.0, 9.0, 8.0], "Ready": [1.5]})
    metrics.handoff_ended("handed", 20.0)
    metrics.store_call("put", 0.2, None)
    metrics.store_call("put", 0.2, "Silent")
    assert {
        name: value(metrics, name)
        for name in (
            *("leader", "streams", "stuck_consumers", "rebalances_total", "moves_total"),
            *("streams_resynced_total", "holdings_repaired_total"),
            *("rebalance_seconds_count", "rebalance_seconds_sum"),
        )
    } == {
        "leader": 1.0,
        "streams": 2.0,
        "stuck_consumers": 3.0,
        "rebalances_total": 2.0,
        "moves_total": 9.0,
        "streams_resynced_total": 1.0,
        "holdings_repaired_total": 2.0,
        "rebalance_seconds_count": 2.0,
        "rebalance_seconds_sum": pytest.approx(0.32),
    }
    assert value(metrics, "handoff_seconds_sum", outcome="handed") == 20.0
    assert value(metrics, "handoff_seconds_bucket", outcome="handed", le="15.0") == 0.0
    assert value(metrics, "store_seconds_count", operation="put") == 2.0
    assert value(metrics, "store_errors_total", operation="put", error="Silent") == 1.0
    assert value(metrics, "store_errors_total", operation="put", error="None") is None
    metrics.leading(False)
    assert value(metrics, "leader") == 0.0


def test_the_oldest_handoff_of_each_phase_is_shown_until_it_ends() -> None:
    """A phase without hand-offs shows zeros, even at the start."""
    metrics = PrometheusMetrics()
    phases = ("Warming", "Ready", "Complete")

    def shown() -> list[tuple[float | None, float | None]]:
        return [
            (
                value(metrics, "handoffs", phase=phase),
                value(metrics, "handoff_oldest_seconds", phase=phase),
            )
            for phase in phases
        ]

    assert shown() == [(0.0, 0.0)] * 3
    metrics.handoffs({"Warming": [7.0, 9.0, 8.0], "Complete": [1.5]})
    assert shown() == [(3.0, 9.0), (0.0, 0.0), (1.0, 1.5)]
    metrics.handoffs({"Ready": [0.5]})
    assert shown() == [(0.0, 0.0), (1.0, 0.5), (0.0, 0.0)]


def test_each_group_has_its_own_metrics_in_one_registry() -> None:
    """The store is shared, so its calls have no group."""
    metrics = PrometheusMetrics(["g", "h"])
    of_g, of_h = metrics.of("g"), metrics.of("h")
    of_g.leading(True)
    of_h.leading(False)
    of_g.handoffs({"Ready": [3.0]})
    of_h.rebalanced(2, 0.1)
    of_h.store_call("get", 0.1, None)
    assert [value(metrics, "leader", group=name) for name in "gh"] == [1.0, 0.0]
    assert [value(metrics, "handoffs", phase="Ready", group=name) for name in "gh"] == [1.0, 0.0]
    assert [value(metrics, "moves_total", group=name) for name in "gh"] == [None, 2.0]
    assert value(metrics, "store_seconds_count", operation="get") == 1.0


def test_a_single_group_with_a_name_has_its_label() -> None:
    """Gauges keep the last value, and count nothing."""
    metrics = PrometheusMetrics(["g"]).of("g")
    for count in (3, 5):
        metrics.stuck(count)
        metrics.streams(count + 2)
    metrics.leading(True)
    names = ("stuck_consumers", "streams", "leader")
    assert [value(metrics, name, group="g") for name in names] == [5.0, 7.0, 1.0]
    assert [value(metrics, name) for name in names] == [None] * 3


async def test_the_gauges_follow_the_condition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each gauge is updated repeatedly."""
    monkeypatch.setattr(metrics_module, "LOOK_S", 0.0)
    metrics = PrometheusMetrics()
    condition: Any = SimpleNamespace(silence_s=1.0, unowned=2, unreadable=3, is_paused=True)
    names = ("store_silence_seconds", "unowned_partitions", "unreadable_values", "paused")
    following = asyncio.ensure_future(metrics.follow(condition))
    await asyncio.sleep(0)
    first = [value(metrics, name) for name in names]
    condition.unowned, condition.is_paused = 0, False
    for _ in range(3):
        await asyncio.sleep(0)
    following.cancel()
    assert (first, [value(metrics, name) for name in names]) == (
        [1.0, 2.0, 3.0, 1.0],
        [1.0, 0.0, 3.0, 0.0],
    )


def test_the_port_of_the_metrics_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error also closes the port, and the server's thread ends."""
    told: list[Any] = []
    server = SimpleNamespace(
        server_port=7,
        shutdown=lambda: told.append("shutdown"),
        server_close=lambda: told.append("closed"),
    )
    thread = SimpleNamespace(join=lambda: told.append("joined"))

    def start(*given: Any) -> Any:
        told.append(given)
        return server, thread

    monkeypatch.setattr(metrics_module, "start_http_server", start)
    metrics = PrometheusMetrics()

    def fails() -> None:
        with metrics.served("h", 0) as port:
            told.append(port)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert told == [(0, "h", metrics.registry), 7, "shutdown", "closed", "joined"]


# -- health


def node(**more: bool) -> Any:
    """A node that serves and does not lead, in a group with a leader."""
    facts = {"lives": True, "serving": True, "leads": False, "has_leader": True, **more}
    return SimpleNamespace(condition=SimpleNamespace(has_leader=facts.pop("has_leader")), **facts)


@pytest.mark.parametrize(
    ("one", "other", "well"),
    [
        ({}, {}, {"", LIVES, READY, SERVES}),
        ({"leads": True}, {}, {"", LIVES, READY, SERVES, LEADS, "leader/g"}),
        ({}, {"leads": True}, {"", LIVES, READY, SERVES, LEADS, "leader/h"}),
        ({"lives": False}, {}, {"", READY, SERVES}),
        ({}, {"serving": False}, {"", LIVES}),
        ({"has_leader": False}, {}, {"", LIVES, SERVES}),
    ],
)
async def test_each_role_is_well_by_its_own_condition(
    one: dict[str, bool], other: dict[str, bool], well: set[str]
) -> None:
    """A role needs all groups to be healthy, but leading needs only one."""
    health = Health(Groups({"g": node(**one), "h": node(**other)}))
    await health.look()
    found = {
        role
        for role in ("", LIVES, READY, SERVES, LEADS, "leader/g", "leader/h")
        if (await health.servicer.Check(health_pb2.HealthCheckRequest(service=role), None)).status
        == health_pb2.HealthCheckResponse.SERVING
    }
    assert found == well


@pytest.mark.parametrize(("name", "leads"), [("", []), ("g", ["leader/g"])])
async def test_only_a_group_with_a_name_has_a_role_of_its_leader(
    name: str, leads: list[str]
) -> None:
    """A request without a group is for the only group, whether or not it has a name."""
    only = node(leads=True)
    groups = Groups({name: only})
    health = Health(groups)
    await health.look()
    found = [role for role in health.servicer._server_status if role.startswith("leader/")]
    assert (found, groups.of("") is only) == (leads, True)


# -- Kafka's counts


class Admin:
    """A fake admin client of a cluster with two topics; ``broken`` is the call that raises."""

    made: ClassVar[list[Admin]] = []
    broken: ClassVar[str] = ""

    def __init__(self, **options: Any) -> None:
        self.options, self.calls = options, []
        self.made.append(self)

    async def start(self) -> None:
        """Connect."""
        if self.broken == "start":
            raise OSError("away")

    async def close(self) -> None:
        """Disconnect."""
        self.calls.append("closed")

    async def _send_request(self, request: Any) -> Any:
        """Return the topics, with errors for three of them; a list does not contain "hidden"."""
        if self.broken == "list":
            raise OSError("away")
        if self.broken == "silence":
            await asyncio.sleep(60)
        topics, may_create, *_ = request.build(MetadataRequest_v5).to_object().values()
        assert may_create is False
        self.calls.append("listed" if topics is None else f"asked for {topics}")
        found = {"other": (0, 1), "t": (0, 3), "gone": (3, 0), "denied": (29, 1), "hidden": (29, 0)}
        asked = [name for name in found if name != "hidden"] if topics is None else topics
        described = [
            {"topic": name, "error_code": error, "partitions": [*range(count)]}
            for name in asked
            for error, count in [found.get(name, (3, 0))]
        ]
        return SimpleNamespace(to_object=lambda: {"topics": described})


@pytest.fixture
def admins(monkeypatch: pytest.MonkeyPatch) -> list[Admin]:
    """Record the admin clients that are created."""
    monkeypatch.setattr(Admin, "made", [])
    monkeypatch.setattr(Admin, "broken", "")
    monkeypatch.setattr(discovery, "AIOKafkaAdminClient", Admin)
    return Admin.made


async def test_a_count_is_asked_over_one_connection(admins: list[Admin]) -> None:
    """A missing topic has no count, and must not be created by the request."""
    topics = KafkaTopics("b:1")
    assert [await topics.count(name) for name in ("t", "absent", "gone")] == [3, None, None]
    [admin] = admins
    assert admin.options["bootstrap_servers"] == "b:1"
    assert admin.calls == ["listed", "listed", "asked for ['absent']"]
    await topics.close()
    await topics.close()
    assert admin.calls[-1] == "closed"
    assert admin.calls.count("closed") == 1


async def test_the_topics_of_a_refresh_are_listed_once(
    admins: list[Admin], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier, each topic cost a list of all topics. A missing topic may be new: it is listed again."""
    topics = KafkaTopics("b:1")
    assert [await topics.count(name) for name in ("t", "other", "t")] == [3, 1, 3]
    assert admins[0].calls == ["listed"]
    assert await topics.count("absent") is None
    assert admins[0].calls == ["listed", "listed", "asked for ['absent']"]
    monkeypatch.setattr(topics, "_listed_until", asyncio.get_running_loop().time())
    assert await topics.count("t") == 3
    assert admins[0].calls[3:] == ["listed"]
    await topics.close()


@pytest.mark.parametrize("topic", ["denied", "hidden"])
async def test_a_topic_that_kafka_refuses_to_describe_is_not_missing(
    admins: list[Admin], topic: str
) -> None:
    """A missing topic counts as deleted after two checks, and its owners lose all its partitions."""
    topics = KafkaTopics("b:1")
    with pytest.raises(StoreUnavailable, match=f"{topic}: TopicAuthorizationFailedError"):
        await topics.count(topic)
    await topics.close()
    assert [admin.calls[-1] for admin in admins] == ["closed"]


@pytest.mark.parametrize("broken", ["start", "list", "silence"])
async def test_a_connection_that_failed_is_closed_and_made_anew(
    admins: list[Admin], monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """The error names the brokers and the topic."""
    monkeypatch.setattr(Admin, "broken", broken)
    topics = KafkaTopics("b:1", timeout_s=0.01)
    with pytest.raises(StoreUnavailable, match=r"Kafka at b:1 did not return .* of t: "):
        await topics.count("t")
    assert admins[0].calls == ["closed"]
    monkeypatch.setattr(Admin, "broken", "")
    assert (await topics.count("t"), len(admins)) == (3, 2)


# -- options


def test_callers_are_known_by_tokens_first_then_by_certificates(tmp_path: Path) -> None:
    """Tokens have priority over certificates; the administrators are passed on."""
    (tmp_path / "tokens").write_text("a of-a\n")
    (tmp_path / "pem").write_text("")
    pem = str(tmp_path / "pem")
    tls = {"tls_cert": pem, "tls_key": pem, "tls_client_ca": pem, "admins": "a,b"}
    tokens = {"tokens": str(tmp_path / "tokens"), "admins": "a"}
    assert isinstance(Options.read({}, {}).authenticator(), NoAuthentication)
    assert isinstance(Options.read({**tls, **tokens}, {}).authenticator(), TokenAuthenticator)
    found = Options.read(tls, {}).authenticator()
    assert isinstance(found, CertificateAuthenticator)
    certificates = Options.read(tls, {}).certificates()
    assert certificates is not None
    assert Options.read({}, {}).certificates() is None


def test_each_group_has_its_own_prefix_and_topics() -> None:
    """A topic may have the name of a group; a service with one group keeps its prefix."""
    said = {"groups": "g,gh", "topic": "g/t=1,gh/t=2,gh/g=3", "prefix": "/p/", "replicas": "2"}
    groups = Options.read(said, {}).groups
    assert {name: topics for name, (_, topics) in groups.items()} == {
        "g": {"t": 1},
        "gh": {"t": 2, "g": 3},
    }
    assert [(one.prefix, one.replicas) for one, _ in groups.values()] == [
        ("/p/g/", 2),
        ("/p/gh/", 2),
    ]
    [(name, (settings, topics))] = Options.read({"topic": "t=1"}, {}).groups.items()
    assert (name, settings.prefix, topics) == ("", Options.read({}, {}).settings.prefix, {"t": 1})


@pytest.mark.parametrize(
    ("said", "field", "value"),
    [
        ({}, "endpoints", ("http://a:1", "http://b:2")),
        ({"etcd_user": "u"}, "user", "u"),
        ({"etcd_password": "p"}, "password", "p"),
        ({}, "user", None),
        ({}, "ca", None),
    ],
)
async def test_etcds_options_reach_its_store_which_is_closed_at_the_end(
    monkeypatch: pytest.MonkeyPatch, said: dict[str, str], field: str, value: Any
) -> None:
    """The store's calls are measured; without the option there is no user."""
    made: list[Any] = []

    class Etcd:
        def __init__(self, access: Any, *, observe: Any) -> None:
            made.extend([access, observe])

        async def close(self) -> None:
            made.append("closed")

    monkeypatch.setattr(serve, "EtcdStore", Etcd)
    metrics = PrometheusMetrics()
    options = Options.read({"etcd": "http://a:1,http://b:2", **said}, {})
    async with contextlib.AsyncExitStack() as ends:
        serve._open_store(options, metrics, ends)
    assert getattr(made[0], field) == value
    assert made[1:] == [metrics.store_call, "closed"]


@pytest.mark.parametrize(
    ("version", "level"), [("3.5.12", "WARNING"), ("3.5.13", None), (StoreError("silent"), "INFO")]
)
async def test_an_etcd_that_may_end_leases_is_warned_of(
    caplog: pytest.LogCaptureFixture, version: Any, level: str | None
) -> None:
    """An unknown version does not stop the service; an in-memory store has no version."""
    caplog.set_level("INFO")

    class Etcd(EtcdStore):
        def __init__(self) -> None:
            """Skip the connection."""

        async def version(self) -> Any:
            if isinstance(version, Exception):
                raise version
            return version

    await serve._check_version(Etcd())
    await serve._check_version(MemoryStore())
    said = [one.levelname for one in caplog.records if one.name == serve.__name__]
    assert said == ([] if level is None else [level])

"""The table of private names is complete, equals its page, and is checked before an install."""

from __future__ import annotations

import ast
import configparser
import dis
import functools
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import faust
import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.consumer.group_coordinator import GroupCoordinator
from faust.assignor.copartitioned_assignor import CopartitionedAssignor
from faust.tables.manager import TableManager
from faust.tables.recovery import Recovery
from faust.transport.consumer import Consumer
from mode.utils.queues import FlowControlEvent, ThrowableQueue

from faust_assigner.app.host import bases, check, table_bases
from faust_assigner.app.host.check import demand, shape_of
from faust_assigner.app.host.private_apis import PRIVATE_APIS, VERSIONS, PrivateApi
from faust_assigner.errors import HostMismatch

ROOT = Path(__file__).resolve().parents[4]
APP = ROOT / "faust_assigner" / "app"
PARTS = {part for api in PRIVATE_APIS for part in api.parts}
OURS = "faust_assigner:PartitionAssignor"
NAMES = {api.name for api in PRIVATE_APIS}


@pytest.fixture(autouse=True)
def _host_is_looked_at_anew() -> Iterator[None]:
    shape_of.cache_clear()
    yield
    shape_of.cache_clear()


def test_the_installed_host_fits() -> None:
    """All rows fit, including the comparison with stock Faust."""
    demand(PARTS)
    assert check.main() == 0


@pytest.mark.parametrize("test", sorted({api.test for api in PRIVATE_APIS}))
def test_every_named_test_exists(test: str) -> None:
    """The test's file defines the named function."""
    file, _, name = test.partition("::")
    assert re.search(rf"^ *(async )?def {name}\(", (ROOT / file).read_text(), re.MULTILINE)


def test_no_name_is_listed_twice_and_every_reason_is_given() -> None:
    """Each owner and name has a single row."""
    assert len({(api.owner, api.name) for api in PRIVATE_APIS}) == len(PRIVATE_APIS)
    assert all(api.why and api.parts and "?" not in api.shape for api in PRIVATE_APIS)


def test_the_versions_are_those_of_setup_cfg() -> None:
    """The check accepts the same versions as pip."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    extras = setup["options.extras_require"]
    required = f"{extras['faust']} {extras['clients']}".split()
    for name, (first, beyond) in VERSIONS.items():
        assert f"{name}>={first},<{beyond}" in required


def _names_of(owner: type) -> set[str]:
    """Return the private names of a class and its bases: methods, values, set attributes."""
    names = set[str]().union(*map(_names_in, owner.__mro__))
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


@functools.cache
def _names_in(base: type) -> set[str]:
    names: set[str] = set()
    for known, made in vars(base).items():
        names.add(known)
        code = getattr(inspect.unwrap(made) if callable(made) else made, "__code__", None)
        if code is not None:
            names.update(s.argval for s in dis.get_instructions(code) if s.opname == "STORE_ATTR")
    return names


def _host_names() -> set[str]:
    """Return the private names of all classes in the table."""
    owners = {tuple(api.owner.split(":")) for api in PRIVATE_APIS if ":" in api.owner}
    return {
        name
        for module, kind in owners
        for name in _names_of(getattr(importlib.import_module(module), kind))
    }


def _private_uses(tree: ast.AST) -> Iterator[tuple[str | None, str]]:
    """Yield (class of a use on self, else None; name)."""
    left: list[tuple[ast.AST, str | None]] = [(tree, None)]
    while left:
        node, inside = left.pop()
        if (
            isinstance(node, ast.Attribute)
            and node.attr.startswith("_")
            and not node.attr.startswith("__")
        ):
            on_self = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            yield inside if on_self else None, node.attr
        below = node.name if isinstance(node, ast.ClassDef) else inside
        left += [(child, below) for child in ast.iter_child_nodes(node)]


def test_every_private_name_the_app_uses_is_in_the_table() -> None:
    """Uses on self count only in classes mixed over the host's classes."""
    host = _host_names()
    of_mixins = {kind: _names_of(owner) for kind, (owner,) in HOSTS.items()}
    for path in sorted(APP.rglob("*.py")):
        used = _private_uses(ast.parse(path.read_text()))
        unlisted = {
            name
            for kind, name in used
            if name in (host if kind is None else of_mixins.get(kind, set()))
        } - NAMES
        assert not unlisted, path


def _overridden() -> Iterator[tuple[str, str, Any, Any]]:
    """Yield (our class, name, our method, the overridden one of Faust or mode) for each override."""
    for path in sorted(APP.rglob("*.py")):
        module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
        for kind in vars(module).values():
            if not inspect.isclass(kind) or kind.__module__ != module.__name__:
                continue
            bases = [base for owner in HOSTS.get(kind.__name__, ()) for base in owner.__mro__]
            bases += [
                b for b in kind.__mro__[1:] if b.__module__.split(".")[0] in ("faust", "mode")
            ]
            for name, made in vars(kind).items():
                hosts = [vars(base)[name] for base in bases if name in vars(base)]
                if (
                    not name.startswith("__")
                    and hosts
                    and (callable(made) or isinstance(made, property))
                ):
                    yield kind.__name__, name, made, hosts[0]


def _hosts() -> dict[str, tuple[type, ...]]:
    from faust.app.router import Router
    from faust.stores import rocksdb
    from faust.tables.base import Collection
    from faust.tables.sets import ChangeloggedSetManager
    from faust.transport.consumer import TransactionManager
    from faust.transport.drivers import aiokafka as driver

    return {
        "RepairedConsumer": (driver.Consumer,),
        "PartitionTransactions": (TransactionManager,),
        "RecoveringTables": (TableManager,),
        "RepairedTables": (TableManager,),
        "TableStore": (rocksdb.Store,),
        "WriteBehindStore": (rocksdb.Store,),
        "WriteBehindSets": (ChangeloggedSetManager,),
        "RecoveryLoop": (Recovery,),
        "AllowlistRouter": (Router,),
        "FlowControl": (FlowControlEvent,),
        "ChangelogQueue": (ThrowableQueue,),
        "_Bounded": (CopartitionedAssignor,),
        "PartitionRecovery": (Recovery,),
        "CooperativeCoordinator": (GroupCoordinator,),
        "FairFetcher": (Fetcher,),
        "KeyRouter": (Router,),
        "ScopedTable": (Collection,),
        "BareFetcher": (Fetcher,),
        "AssigningThread": (driver.AIOKafkaConsumerThread,),
        "RepairedThread": (driver.AIOKafkaConsumerThread,),
    }


HOSTS = _hosts()

#: Classes whose base Faust documents for overriding.
PUBLIC = {"Fixup", "LedgerSensor", "RecordsEnd", "PartitionAssignor"}


def test_every_method_the_mixins_override_is_in_the_table_or_public_with_the_same_parameters() -> (
    None
):
    """A changed signature would pass unnoticed at the call."""
    found = [(kind, name, both) for kind, name, *both in _overridden() if kind not in PUBLIC]
    assert len({kind for kind, _, _ in found}) >= 12
    unlisted = [(kind, name, both) for kind, name, both in found if name not in NAMES]
    assert not [(kind, name) for kind, name, _ in unlisted if name.startswith("_")]
    assert len(unlisted) > 10, "public names that the host's reference documents"
    for kind, name, (ours, hosts) in unlisted:
        assert _parameters(ours) == _parameters(hosts), (kind, name)


def _parameters(made: Any) -> str:
    return "property" if isinstance(made, property) else check.signature(made)


def test_the_protocols_say_what_the_host_has() -> None:
    """mypy checks the mixins against the protocols; this test checks them against Faust."""
    hosts = {
        bases.ConsumerBase: HOSTS["RepairedConsumer"],
        bases.TransactionsBase: HOSTS["PartitionTransactions"],
        table_bases.TablesBase: HOSTS["RecoveringTables"],
        table_bases.RecoveryBase: HOSTS["RecoveryLoop"],
        table_bases.RocksDBBase: HOSTS["TableStore"],
        bases.RouterBase: HOSTS["AllowlistRouter"],
        table_bases.SetsBase: HOSTS["WriteBehindSets"],
    }
    for protocol, (host,) in hosts.items():
        for name, said in vars(protocol).items():
            if inspect.isfunction(said) and not name.startswith(("__", "_proto", "_no_init")):
                expected = check.signature(getattr(host, name)).removeprefix("async ")
                found = check.signature(said).removeprefix("async ")
                # mode's helpers accept a few more keywords than the protocols list.
                helpers = ("wait", "crash", "sleep", "wait_for_stopped")
                assert found == expected or name in helpers, (protocol, name)
        private = {name for name in protocol.__annotations__ if name.startswith("_")}
        assert private <= NAMES, protocol


def fresh_app(**options: Any) -> faust.App:
    """Return an app with our assignor, before Faust reads its settings."""
    return faust.App(
        "shop", PartitionAssignor=OURS, broker="kafka://127.0.0.1:1", web_enabled=False, **options
    )


def another_commit(self: Any, offsets: Any, *, atomically: bool = False) -> None:
    """Stand in with a signature unknown to Faust."""


async def test_on_a_host_with_another_signature_the_app_does_not_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error names owner, version, both signatures and the ways out; no part is installed."""
    monkeypatch.setattr(Consumer, "_commit_offsets", another_commit)
    app = fresh_app()
    with pytest.raises(HostMismatch) as found:
        app.finalize()
    said = str(found.value)
    assert (
        "faust-streaming 0.15.3: Consumer._commit_offsets: expected async (self, offsets, " in said
    )
    assert "found (self, offsets, *, atomically=)" in said
    assert "Install aiokafka>=0.14,<0.15, faust-streaming>=0.15.3,<0.16, or set " in said
    assert "FAUST_ASSIGNER_REPAIRS=0" in said
    with pytest.raises(HostMismatch):
        await app.start()
    assert not [name for name in vars(app) if "faust_assigner" in name]
    assert not {"_new_consumer", "flow_control", "tables"} & vars(app).keys()


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (Consumer, "_filter_committable_offsets"),
        (AIOKafkaConsumer, "__init__"),
        (TableManager, "_update_channels"),
    ],
)
def test_what_is_gone_is_named(owner: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error covers a removed method and a method that no longer sets an attribute."""
    monkeypatch.setattr(owner, name, lambda self: None)
    with pytest.raises(HostMismatch, match=r"found (nothing of that name|set in start|\(self\))"):
        fresh_app().finalize()


@pytest.mark.parametrize("said", ["0.15.0rc1", "0.15", "0.13.9", "not installed"])
def test_another_version_is_named(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    """The version alone is a mismatch, regardless of the signatures."""
    monkeypatch.setattr(check, "_version", lambda name: said if name == "aiokafka" else "0.15.3")
    with pytest.raises(
        HostMismatch, match=rf"^aiokafka {re.escape(said)}: expected 0\.14 or later, before 0\.15\."
    ):
        fresh_app().finalize()


@pytest.mark.parametrize("said", ["0.14", "0.14.99"])
def test_the_first_and_the_last_fitting_versions_are_taken(
    monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    """The range includes its lower bound."""
    monkeypatch.setattr(check, "_version", lambda name: said if name == "aiokafka" else "0.15.3")
    demand(())


async def test_without_repairs_the_app_starts_without_what_does_not_fit(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each part is installed in full, or left out with a log line."""
    monkeypatch.setattr(Consumer, "_commit_offsets", another_commit)
    monkeypatch.setattr(Recovery, "on_rebalance", another_commit)
    app = fresh_app(faust_assigner_repairs="0")
    app.finalize()
    assert (
        "The app starts without the part ledger: faust-streaming 0.15.3: Recovery._generation_id"
        in caplog.text
    )
    assert object.__getattribute__(app.conf, "TableManager") is TableManager
    assert type(app.flow_control) is FlowControlEvent
    assert "_new_consumer" in vars(app), "the driver still asks the app's assignor"


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda a, b=1, *c, d, e=None, **f: None, "(a, b=, *c, d, e=, **f)"),
        (another_commit, "(self, offsets, *, atomically=)"),
        (fresh_app, "(**options)"),
    ],
)
def test_a_shape_is_names_and_kinds(function: Any, shape: str) -> None:
    """Annotations and default values may change."""
    assert check.signature(function) == shape


def test_a_shape_is_of_one_kind_only() -> None:
    """A property is no class attribute, and a method differs from the attribute it sets."""
    here = f"{__name__}:Kinds"
    shapes = {
        "method": "async (self)",
        "prop": "property",
        "value": "class attribute",
        "made": "set in made_here",
        "none": check.NOTHING,
    }
    for name, shape in shapes.items():
        expected = "set in other" if name == "made" else "(self)"
        assert shape_of(PrivateApi(here, name, expected, ("stock",), "", "")) == shape


class Kinds:
    """A member of each kind."""

    value = 1

    async def method(self) -> None:
        """A coroutine."""

    @property
    def prop(self) -> int:
        """A property."""
        return 1

    def made_here(self) -> None:
        """Set an attribute."""
        self.made = 1


async def test_where_cooperative_rounds_do_not_fit_the_app_does_not_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same coordinator serves eager and cooperative rounds."""
    monkeypatch.setattr(GroupCoordinator, "_on_join_complete", another_commit)
    expected = r"GroupCoordinator\._on_join_complete: expected async \(self, generation, "
    with pytest.raises(HostMismatch, match=expected):
        fresh_app().finalize()


@pytest.mark.parametrize("options", [{}, {"faust_assigner_cooperative": False}])
def test_one_recovery_serves_cooperative_and_eager_rounds(options: dict[str, Any]) -> None:
    """Both settings mix the tables from RepairedTables."""
    app = fresh_app(**options)
    app.finalize()
    assert "RepairedTables" in object.__getattribute__(app.conf, "TableManager").__qualname__

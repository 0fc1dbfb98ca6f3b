"""The host's methods that ours override, and the places where ours replace a method."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import faust
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.consumer.group_coordinator import GroupCoordinator
from faust.agents.replies import ReplyConsumer
from faust.assignor.partition_assignor import PartitionAssignor as StockAssignor
from faust.streams import Stream
from faust.tables.base import Collection
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread
from faust.types.enums import ProcessingGuarantee

from faust_assigner.app.assignor import PartitionAssignor
from faust_assigner.app.host.mixing import over
from faust_assigner.app.tables.scope import ScopedTable

ROOT = Path(__file__).resolve().parents[3]
APP = ROOT / "faust_assigner" / "app"
PACKAGE = "faust_assigner.app."
#: Attributes that every class has, which are no methods of its own.
_NO_METHODS = frozenset({"__init__", "__init_subclass__", "__class_getitem__", "__subclasshook__"})


def name_of(made: type) -> str:
    """Return ``module:Class``, for ours without the package's name."""
    return f"{made.__module__}:{made.__qualname__}".removeprefix(PACKAGE)


@cache
def modules() -> tuple[Any, ...]:
    """Return all modules of the app."""
    names = sorted(
        ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in APP.rglob("*.py")
    )
    return tuple(importlib.import_module(name) for name in names)


@cache
def composed() -> tuple[type, ...]:
    """Return the classes of an app of ours, under both guarantees."""
    found: dict[type, None] = {}
    for guarantee in ProcessingGuarantee:
        app = faust.App(
            f"duties-{guarantee.value}",
            PartitionAssignor="faust_assigner:PartitionAssignor",
            broker="kafka://127.0.0.1:1",
            store="rocksdb://",
            web_enabled=False,
            processing_guarantee=guarantee,
        )
        app.finalize()
        consumer = app._new_consumer()
        tables = [app.Table("counts"), app.SetTable("seen", value_type=int)]
        parts = [consumer, consumer.transactions, app.tables, app.tables.recovery]
        parts += [app.tables.changelog_queue, app.flow_control, *(table.data for table in tables)]
        classes = [type(part) for part in parts]
        classes += [
            object.__getattribute__(app.conf, name) for name in ("Agent", "Router", "Stream")
        ]
        found.update(dict.fromkeys(classes))
    found[over(ScopedTable, Collection)] = None
    found[type("Assignor", (PartitionAssignor, StockAssignor), {})] = None
    modules()
    found.update(dict.fromkeys(_ours_under(GroupCoordinator)))
    found.update(dict.fromkeys(_ours_under(Fetcher)))
    found.update(dict.fromkeys(_ours_under(Stream)))
    found.update(dict.fromkeys(_ours_under(ReplyConsumer)))
    found.update(dict.fromkeys(_ours_under(AIOKafkaConsumerThread)))
    return tuple(found)


def _ours_under(host: type) -> Iterator[type]:
    for kind in host.__subclasses__():
        if kind.__module__.startswith(PACKAGE):
            yield kind
        yield from _ours_under(kind)


def overrides() -> dict[str, str]:
    """Return our method -> the hidden method of the host, both as ``module:Class.name``."""
    found = {}
    for made in composed():
        for at, ours in enumerate(made.__mro__):
            if not ours.__module__.startswith(PACKAGE):
                continue
            for name, method in vars(ours).items():
                host = _hidden(made.__mro__[at + 1 :], name)
                if host is not None and name not in _NO_METHODS and _is_method(method):
                    found[f"{name_of(ours)}.{name}"] = f"{name_of(host)}.{name}"
    return found


def _hidden(bases: tuple[type, ...], name: str) -> type | None:
    """Return the class of the host whose method of that name would be called."""
    for base in bases:
        if base is not object and not base.__module__.startswith(PACKAGE) and name in vars(base):
            made = vars(base)[name]
            if _is_method(made) and not getattr(made, "__isabstractmethod__", False):
                return base
    return None


def _is_method(made: Any) -> bool:
    kinds = ("ServiceTask", "cached_property")
    return inspect.isroutine(made) or isinstance(made, property) or type(made).__name__ in kinds


def replacements() -> dict[str, str]:
    """Return the places that set an attribute of a host's object to ours -> the value's source.

    ``module:function target``, as in ``membership.leave:install app._stop_consumer``.
    """
    names = _host_names()
    found = {}
    for module in modules():
        tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
        short = module.__name__.removeprefix(PACKAGE)
        for function in ast.walk(tree):
            if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            for target, value in _assigned(function):
                if target.attr in names and _is_ours(module, function, target, value):
                    found[f"{short}:{function.name} {ast.unparse(target)}"] = ast.unparse(value)
    return found


def _assigned(function: ast.AST) -> Iterator[tuple[ast.Attribute, ast.expr]]:
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=True))
            for one, value in pairs:
                if isinstance(one, ast.Attribute):
                    yield one, value


def _is_ours(module: Any, function: Any, target: ast.Attribute, value: ast.expr) -> bool:
    """Return whether ``value`` is our function, class or object, or wraps the old value."""
    inner = {
        n.name for n in ast.walk(function) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    here = vars(module)
    match value:
        case ast.Call(func=ast.Name(id="partial" | "over")):
            return target.attr not in ("Consumer", "TransactionManager")
        case ast.Call(func=ast.Call(func=ast.Name(id="over"))):
            return True
        case ast.Call(func=ast.Name(id=name)):
            made = here.get(name)
            return inspect.isclass(made) and made.__module__.startswith(PACKAGE)
        case ast.Name(id=name):
            made = here.get(name)
            ours = inspect.isroutine(made) or inspect.isclass(made)
            return name in inner or (ours and made.__module__.startswith(PACKAGE))
        case ast.Attribute(attr=name):
            return name in _methods() and ast.unparse(target.value) != "self"
        case ast.Call(args=arguments):
            return any(ast.unparse(a) == ast.unparse(target) for a in arguments) and not (
                isinstance(value.func, ast.Name)
            )
    return False


@cache
def _methods() -> frozenset[str]:
    """Return the names of the methods of the app's classes."""
    kinds = [k for m in modules() for k in vars(m).values() if inspect.isclass(k)]
    ours = [k for k in kinds if k.__module__.startswith(PACKAGE)]
    return frozenset(n for k in ours for n, made in vars(k).items() if inspect.isfunction(made))


@cache
def _host_names() -> frozenset[str]:
    """Names of the host's methods and attributes that are in the table of names."""
    from faust_assigner.app.host.private_apis import PRIVATE_APIS

    names = {"__class__"}
    for owner in {api.owner for api in PRIVATE_APIS if ":" in api.owner}:
        module, _, kind = owner.partition(":")
        for base in getattr(importlib.import_module(module), kind).__mro__[:-1]:
            names.update(vars(base))
            names.update(getattr(base, "__annotations__", {}))
    return frozenset(names | {api.name for api in PRIVATE_APIS})

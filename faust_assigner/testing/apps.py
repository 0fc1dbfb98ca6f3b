"""The app under test: found by its path or created by a function, with settings for tests."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import faust

from faust_assigner.errors import FaustAssignerError
from faust_assigner.settings.table import ACCEPTABLE_FROM_NOTHING, FOLLOW_UP_S

if TYPE_CHECKING:
    from faust.types.app import AppT

#: ``"shop.app"``, ``"shop.app:app"``, or a function that returns a new app.
AppSource: TypeAlias = str | Callable[[], Any]

#: Test defaults that differ from production. A test's own settings have priority.
SETTINGS: Mapping[str, object] = {
    "web_enabled": False,
    "broker_heartbeat_interval": 0.3,
    "broker_session_timeout": 6.0,
    "broker_commit_interval": 0.5,
    "consumer_auto_offset_reset": "earliest",
    "table_cleanup_interval": 1.0,
}
#: With these settings small tables get warm-ups, as large tables do in production.
ENVIRONMENT: Mapping[str, str] = {ACCEPTABLE_FROM_NOTHING.name: "0", FOLLOW_UP_S.name: "1"}
_importing = threading.Lock()


class AppNotFound(FaustAssignerError):
    """Raised if the test's app does not exist; the message has the names of existing apps."""


def settings_of(
    name: str, bootstrap: str, folder: Path, given: Mapping[str, object]
) -> dict[str, object]:
    """Return all settings of the worker ``name``; its tables are kept below ``folder``."""
    url = f"kafka://{bootstrap}"
    return {
        **SETTINGS,
        "broker": url,
        "broker_consumer": url,
        "broker_producer": url,
        "broker_client_id": name,
        "canonical_url": f"http://{name}:6066",
        "datadir": str(folder / "data"),
        **given,
    }


@contextlib.contextmanager
def configured(settings: Mapping[str, object]) -> Iterator[None]:
    """Override the settings of all apps that are configured during the block."""

    def configure(app: AppT, conf: Any, **_: object) -> None:
        for name, value in settings.items():
            setattr(conf, name, value)

    faust.App.on_configured.connect(configure, weak=False)
    try:
        yield
    finally:
        faust.App.on_configured.disconnect(configure, weak=False)


@contextlib.contextmanager
def environment() -> Iterator[None]:
    """Set the variables of ``ENVIRONMENT`` during the block, unless they are already set."""
    added = {name: value for name, value in ENVIRONMENT.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def check(source: AppSource, *, needs_path: bool = False) -> None:
    """Raise AppNotFound if the module of a path does not exist, or if ``source`` must be a path and is none.

    Imports only the packages that contain the module, not the module.
    """
    if not isinstance(source, str):
        if needs_path:
            raise AppNotFound(
                'fleet(processes=True) needs the path of the app, such as "shop.app": a process cannot be '
                f"given {source!r}"
            )
        return
    module, _, _ = source.partition(":")
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError) as error:
        raise AppNotFound(f"fleet({source!r}): cannot import {module!r}: {error}") from error
    if found is None:
        raise AppNotFound(
            f"fleet({source!r}): no module {module!r} on sys.path; write the path of the app's "
            f"module with dots, as in `faust -A {module} worker`"
        )


def load(source: AppSource) -> Any:
    """Return the app of ``source``; import a path as ``faust -A`` does. Raises AppNotFound."""
    if not isinstance(source, str):
        return _check_is_app(source(), f"{getattr(source, '__qualname__', source)}()")
    check(source)
    module, _, attribute = source.partition(":")
    return _app_attribute(source, importlib.import_module(module), attribute or "app")


def load_copy(source: AppSource) -> Any:
    """Return a new app: execute the modules of the app's package again.

    An app can run only once in a process, so each worker needs its own copy. The test's own imports
    keep the earlier modules.
    """
    if not isinstance(source, str):
        return load(source)
    check(source)
    module = source.partition(":")[0]
    package = module.rpartition(".")[0]

    def is_copied(name: str) -> bool:
        return name == module or (
            bool(package) and name.startswith(package + ".") and _is_app_module(name)
        )

    with _importing:
        before = {name: _remove_module(name) for name in list(sys.modules) if is_copied(name)}
        try:
            return load(source)
        finally:
            for name in [name for name in sys.modules if is_copied(name)]:
                _remove_module(name)
            for name, one in before.items():
                _restore_module(name, one)


def _is_app_module(name: str) -> bool:
    """Return whether a module belongs to the app and is not a test."""
    return not any(
        part in ("tests", "conftest") or part.startswith("test_") for part in name.split(".")
    )


def _remove_module(name: str) -> ModuleType:
    """Remove a module from ``sys.modules`` and from its package.

    Otherwise ``from package import module`` would find the old module in the package's
    attribute.
    """
    module = sys.modules.pop(name)
    package, _, last = name.rpartition(".")
    if getattr(sys.modules.get(package), last, None) is module:
        delattr(sys.modules[package], last)
    return module


def _restore_module(name: str, module: ModuleType) -> None:
    sys.modules[name] = module
    package, _, last = name.rpartition(".")
    if package in sys.modules:
        setattr(sys.modules[package], last, module)


def _app_attribute(source: str, module: ModuleType, attribute: str) -> Any:
    if not hasattr(module, attribute):
        apps = sorted(name for name, value in vars(module).items() if isinstance(value, faust.App))
        others = f"; its apps: {', '.join(apps)}" if apps else "; it has no Faust app"
        raise AppNotFound(
            f"fleet({source!r}): the module {module.__name__} has no {attribute!r}{others}"
        )
    return _check_is_app(getattr(module, attribute), f"{module.__name__}:{attribute}")


def _check_is_app(app: AppT, what: str) -> Any:
    if not isinstance(app, faust.App):
        raise AppNotFound(f"{what} is not a faust.App but a {type(app).__name__}")
    return app

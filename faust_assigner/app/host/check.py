"""Checks that the installed Faust, mode and aiokafka (the host) have the names that this package uses.

``python -m faust_assigner.app.host.check`` checks all names and exits with 1 if a name does not
fit.
"""

from __future__ import annotations

import dis
import functools
import importlib
import inspect
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from faust_assigner.app.host.private_apis import PRIVATE_APIS, VERSIONS, PrivateApi
from faust_assigner.errors import HostMismatch

NOTHING = "nothing of that name"

DISTRIBUTIONS = {"faust": "faust-streaming", "mode": "mode-streaming", "aiokafka": "aiokafka"}


def demand(
    parts: Collection[str],
    *,
    apis: Iterable[PrivateApi] = PRIVATE_APIS,
    versions: Mapping[str, tuple[str, str]] = VERSIONS,
) -> None:
    """Raise HostMismatch, with the list of mismatches, unless the host fits ``parts``.

    ``parts`` are names of installers, as in ``private_apis.toml``. Cost: 50 ms at the first call in a
    process; no object is created or changed.
    """
    found = [
        *_foreign_versions(versions),
        *(said for api in apis if set(parts) & set(api.parts) for said in mismatch_of(api)),
    ]
    if found:
        ranges = ", ".join(
            f"{name}>={first},<{beyond}" for name, (first, beyond) in sorted(VERSIONS.items())
        )
        raise HostMismatch(
            f"{'; '.join(found)}. Install {ranges}, or set FAUST_ASSIGNER_REPAIRS=0 to run without the "
            "repairs and without each part that does not fit"
        )


def mismatch_of(api: PrivateApi) -> Iterator[str]:
    """Yield a description of the mismatch, if ``api`` is not as expected."""
    found = shape_of(api)
    if found != api.shape:
        owner = api.owner.rpartition(":")[2]
        yield (
            f"{_installed(api.owner)}: {owner}.{api.name}: expected {api.shape}, found {found} "
            f"(its use: {api.why})"
        )


@functools.cache
def shape_of(api: PrivateApi) -> str:
    """Return the shape of the name in the host, in the form of ``PrivateApi.shape``.

    The result is cached, because the host does not change during a process.
    """
    module, _, name = api.owner.partition(":")
    try:
        owner: Any = importlib.import_module(module)
        owner = getattr(owner, name) if name else owner
    except (ImportError, AttributeError):
        return NOTHING
    if api.shape.startswith("set in "):
        bases = inspect.getmro(owner)
        if any(
            _sets_attribute(vars(base).get(api.shape.removeprefix("set in ")), api.name)
            for base in bases
        ):
            return api.shape
        methods = sorted(
            {
                n
                for base in bases
                for n, made in vars(base).items()
                if _sets_attribute(made, api.name)
            }
        )
        return f"set in {', '.join(methods)}" if methods else NOTHING
    missing = object()
    found = inspect.getattr_static(owner, api.name, missing)
    if found is missing:
        return NOTHING
    if (
        isinstance(found, (property, functools.cached_property))
        or type(found).__name__ == "cached_property"
    ):
        return "property"
    if isinstance(found, (staticmethod, classmethod)):
        found = found.__func__
    return signature(found) if inspect.isroutine(found) else "class attribute"


def signature(function: Any) -> str:
    """Return the parameters' names and kinds as text; ``=`` marks a default, ``async`` a coroutine."""
    function = inspect.unwrap(function)
    parameters = inspect.signature(function).parameters.values()
    # Leave out defaults and annotations: their text depends on the Python version.
    bare = [
        p.replace(
            name=p.name if p.default is p.empty else f"{p.name}_DEFAULT",
            annotation=p.empty,
            default=p.empty,
        )
        for p in parameters
    ]
    text = str(inspect.Signature(bare)).replace("_DEFAULT", "=")
    return f"async {text}" if inspect.iscoroutinefunction(function) else text


def _sets_attribute(method: Any, name: str) -> bool:
    """Return whether ``method`` assigns an attribute called ``name``, of any object."""
    code = getattr(inspect.unwrap(method) if callable(method) else method, "__code__", None)
    return (
        code is not None
        and name in code.co_names
        and any(
            step.opname == "STORE_ATTR" and step.argval == name
            for step in dis.get_instructions(code)
        )
    )


def _foreign_versions(versions: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    for name, (first, beyond) in sorted(versions.items()):
        said = _version(name)
        if not in_range(said, first, beyond):
            yield f"{name} {said}: expected {first} or later, before {beyond}"


def in_range(said: str, first: str, beyond: str) -> bool:
    """Return whether version ``said`` is ``first`` or later, and before ``beyond``."""
    return _version_numbers(first) <= _version_numbers(said) < _version_numbers(beyond)


def _installed(owner: str) -> str:
    name = DISTRIBUTIONS[owner.partition(".")[0].partition(":")[0]]
    return f"{name} {_version(name)}"


@functools.cache
def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _version_numbers(said: str) -> tuple[int, ...]:
    """Convert a version to numbers, such as 0.15.3rc1 to (0, 15, 3); empty if it is not a version."""
    found = re.match(r"\d+(\.\d+)*", said)
    return tuple(int(part) for part in found.group().split(".")) if found else ()


def main() -> int:
    """Check all names; return the exit code."""
    try:
        demand({part for api in PRIVATE_APIS for part in api.parts})
    except HostMismatch as error:
        print(error, file=sys.stderr)
        return 1
    print(
        f"{len(PRIVATE_APIS)} names fit: "
        + ", ".join(f"{n} {_version(n)}" for n in DISTRIBUTIONS.values())
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

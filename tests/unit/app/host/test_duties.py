"""Each replaced method of the host has a row, and each of its duties a place or a reason."""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
from typing import Any

import pytest

from faust_assigner.app.host.duties.table import (
    CALLS,
    HERE,
    ORIGINAL,
    PUT,
    TAKEN,
    ReplacedAttribute,
    ReplacedMethod,
)
from faust_assigner.app.host.private_apis import PRIVATE_APIS
from tests.support.host.found import PACKAGE, composed, overrides, replacements
from tests.support.host.source import always_refers, duties_of, tree_of

CALLING = [(f"{ours}.{name}", name) for ours, names in CALLS.items() for name in names.split()]

#: The word in the source of a place that fulfils a duty of this kind.
WORDS = {"raises": "raise", "logs": "log", "does": "", "state": "", "transaction": "ids"}


def of_host(ref: str) -> Any:
    """Return the host's ``module:Class.name``; raise AttributeError if it is absent."""
    module, _, path = ref.partition(":")
    *owners, name = path.split(".")
    found = importlib.import_module(module)
    for owner in owners:
        found = getattr(found, owner)
    return inspect.getattr_static(found, name)


def of_ours(ref: str) -> Any:
    """Return an object of this package by its reference without the package name."""
    return of_host(PACKAGE + ref)


def by_name(row: ReplacedMethod | ReplacedAttribute) -> str:
    """Return a test id."""
    return row.site if isinstance(row, ReplacedAttribute) else f"{row.host}<-{row.ours}"


def test_every_method_that_hides_one_of_the_hosts_has_a_row() -> None:
    """The rows equal the overridden methods in the classes of an app with our assignor."""
    hidden = overrides()
    calling = {ours for ours, _ in CALLING}
    replacing = {row.ours: row.host for row in TAKEN}
    assert len(hidden) > 80, "the classes were found"
    missing = sorted(hidden.keys() - calling - replacing.keys())
    assert not missing, (
        f"{missing}: no row in faust_assigner/app/host/duties, in [calls] where super() is called on "
        "every path, else with the duties"
    )
    assert not sorted(calling - hidden.keys()), "rows of what hides nothing"
    assert not sorted(calling & {ours for ours in replacing if ours in hidden}), "two rows"
    of_their_own = [row for row in TAKEN if hidden.get(row.ours, row.host) != row.host]
    assert not [
        row.ours
        for row in of_their_own
        if row.ours.rpartition(".")[2] == row.host.rpartition(".")[2]
    ]


def test_at_most_two_classes_of_ours_lie_over_each_class_of_the_host() -> None:
    """A reader finds the order of the steps in one file, or in two."""
    for made in composed():
        ours = [base for base in made.__mro__ if base.__module__.startswith(PACKAGE)]
        assert 1 <= len(ours) <= 2, made


def test_every_attribute_of_the_host_that_is_given_something_of_ours_has_a_row() -> None:
    """The places are found in the source of the app's modules."""
    sites, found = [row.site for row in PUT], replacements()
    assert len(found) > 40, "the places were found"
    assert len(set(sites)) == len(sites)
    missing = sorted(found.keys() - set(sites))
    assert not missing, f"{missing}: no row in [put] of faust_assigner/app/host/duties/duties.toml"
    assert not sorted(set(sites) - found.keys()), "rows of what is not put anywhere"


@pytest.mark.parametrize(("ours", "name"), CALLING)
def test_what_is_said_to_call_the_hosts_on_every_path_does(ours: str, name: str) -> None:
    """An early return or a branch without the call makes the method a replacement with duties."""
    assert always_refers(of_ours(ours), f"super().{name}")


@pytest.mark.parametrize("row", PUT, ids=by_name)
def test_what_is_put_in_a_place_calls_what_was_there_or_says_why_not(
    row: ReplacedAttribute,
) -> None:
    """The replacement calls the original on every path, and both objects exist."""
    made = of_ours(row.made)
    attribute = row.host.rpartition(":")[2]
    if "." in attribute and not attribute.endswith("on_message"):
        of_host(row.host)
    assert row.why or (row.holds and always_refers(made, row.holds))


@pytest.mark.parametrize("row", TAKEN, ids=by_name)
def test_every_duty_of_a_replaced_method_has_a_row(row: ReplacedMethod) -> None:
    """The duties match the host's source; a difference makes the maintainer check the method."""
    said = [duty.what for duty in row.duties]
    assert len(said) == len(set(said))
    listed = sorted(what for what in said if not what.startswith("also "))
    assert listed == sorted(duties_of(of_host(row.host)))


@pytest.mark.parametrize("row", TAKEN, ids=by_name)
def test_every_duty_has_a_place_that_exists_or_a_reason(row: ReplacedMethod) -> None:
    """No duty is dropped without a reason."""
    of_ours(row.ours)
    assert row.why or row.duties
    for duty in row.duties:
        assert duty.where or len(duty.why) > 15, duty
        places = [row.ours if p == HERE else p for p in duty.where.split() if p != ORIGINAL]
        sources = [ast.unparse(tree_of(of_ours(place))) for place in places if "." in place]
        kind, _, name = duty.what.partition(" ")
        said = name if kind == "calls" else WORDS.get(kind)
        if said and places and not duty.why:
            assert any(said in source for source in sources), f"no {said} in {places}"


class Host:
    """A class with a duty of each kind."""

    def __init__(self) -> None:
        self.app: Any = None
        self.completed: Any = None
        self.log: Any = None

    async def method(self, fut: Any, T: Any) -> None:
        """Perform a duty of each kind."""
        assert self.app is not None
        self.completed.set()
        self.log.info(f"Done with {fut}")
        self.log.debug("nobody reads this")
        await self.app.on_rebalance_complete.send()
        await T(self.app.sensors.on_commit_completed)(self)
        self.app, (self.log, other) = None, (None, None)
        self.producer.abort_transaction(other)  # type: ignore[attr-defined]
        fut.set_result(None)
        if other:
            raise RuntimeError("no")


def test_duties_are_read_from_the_source() -> None:
    """Signals, sensors, checks, flags, log lines, transactions and futures have their own words."""
    assert set(duties_of(Host.method)) == {
        "asserts self.app is not None",
        "event completed.set",
        "logs Done with",
        "calls on_rebalance_complete",
        "calls on_commit_completed",
        "sets app",
        "sets log",
        "transaction abort_transaction",
        "does set_result",
        "raises RuntimeError",
    }


class Ours:
    """Methods that call the host's function always or sometimes."""

    async def with_block(self, lock: Any, host: Any) -> Any:
        """Call the function on every path."""
        async with lock:
            return await host()

    def either(self, host: Any) -> Any:
        """Call the function on every path."""
        if self:
            return host(1)
        return host(2)

    def in_an_error(self, host: Any) -> Any:
        """Call the function on every path that ends well."""
        if not self:
            raise ValueError
        return host()

    def early(self, host: Any) -> Any:
        """Return before the call on a path."""
        if self:
            return None
        return host()

    def sometimes(self, host: Any) -> None:
        """Call the function on a single path."""
        if self:
            host()

    def in_a_loop(self, host: Any) -> None:
        """Call the function in an empty loop."""
        for _ in ():
            host()

    def handled(self, host: Any) -> None:
        """Begin the call on every path."""
        try:
            host()
        except ValueError:
            self.failed = True

    def in_a_handler(self, host: Any) -> None:
        """Call the function only after an error."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            host()


@pytest.mark.parametrize(
    ("name", "always"),
    [
        ("with_block", True),
        ("either", True),
        ("in_an_error", True),
        ("handled", True),
        ("early", False),
        ("sometimes", False),
        ("in_a_loop", False),
        ("in_a_handler", False),
    ],
)
def test_a_path_without_the_hosts_is_seen(name: str, always: bool) -> None:
    """Each control flow shape is recognised."""
    assert always_refers(getattr(Ours, name), "host") is always


def test_each_replaced_name_begins_its_use_with_overridden_replaced_or_wrapped() -> None:
    """The page of private names promises the word at the beginning of the use."""
    taken = {*overrides().values(), *(row.host for row in PUT)}
    silent = [
        f"{api.owner}.{api.name}"
        for api in PRIVATE_APIS
        if f"{api.owner}.{api.name}" in taken
        and not api.why.startswith(("overridden", "replaced", "wrapped"))
    ]
    assert silent == []

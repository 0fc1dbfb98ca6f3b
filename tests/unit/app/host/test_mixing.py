"""Our classes over the classes that an app names, and the check of a host for some parts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.app.host.check import demand, in_range, mismatch_of
from faust_assigner.app.host.mixing import host_of, over, parts_of
from faust_assigner.app.host.private_apis import PrivateApi
from faust_assigner.errors import ConfigError, HostMismatch


def host(name: str, *bases: type, module: str = "faust.tables") -> Any:
    """Return a class of Faust or of an app."""
    return type(name, bases or (object,), {"__module__": module})


def ours(name: str, *bases: type) -> Any:
    """Return a class of this package."""
    return type(name, bases or (object,), {"__module__": "faust_assigner.app.tables"})


Host = host("Table")
Own = host("OwnTable", Host, module="shop")
Ours = ours("Repaired", Host)


def test_a_class_of_ours_goes_before_the_apps_under_the_apps_name() -> None:
    """Mode finds a service's tasks by module and qualified name, so the result has its own name."""
    made = over(Ours, Own)
    assert made.__bases__ == (Ours, Own)
    assert (made.__name__, made.__module__) == ("OwnTable", "shop")
    assert made.__qualname__ == "OwnTable[Repaired]"
    assert over(Ours, made) is made, "once"


def test_over_fausts_own_class_ours_stands_alone() -> None:
    """Our class already derives from the host; the result has Faust's name."""
    made = over(Ours, Host)
    assert made.__bases__ == (Ours,)
    assert (made.__name__, made.__module__, made.__qualname__) == (
        "Table",
        "faust.tables",
        "Table[Repaired]",
    )


def test_a_second_class_of_ours_keeps_the_apps_name() -> None:
    """Internal class names would hide the app's name."""
    mixin, first = ours("Mixin"), over(Ours, Own)
    made = over(mixin, first)
    assert made.__bases__ == (mixin, first)
    assert (made.__name__, made.__qualname__) == ("OwnTable", "OwnTable[Repaired][Mixin]")
    on_host = over(mixin, ours("Plain", Host))
    assert on_host.__name__ == "Table"


def test_a_class_beside_fausts_is_refused_by_both_names() -> None:
    """A mixin without a base of Faust fits over any class."""
    stranger = host("Stranger", module="shop")
    expected = r"shop\.Stranger must be a subclass of faust\.tables\.Table, which Repaired replaces"
    with pytest.raises(ConfigError, match=expected):
        over(Ours, stranger)
    assert over(ours("Mixin"), stranger).__bases__[1] is stranger


def test_the_host_of_a_class_is_its_first_base_that_is_not_ours() -> None:
    """A class outside this package is its own host."""
    assert (host_of(Own), host_of(Ours), host_of(ours("Mixin"))) == (Own, Host, object)
    assert host_of(ours("Sub", Own)) is Own


def test_each_app_has_its_own_parts() -> None:
    """Each call returns the same set."""
    first, second = SimpleNamespace(), SimpleNamespace()
    parts_of(first).add("repairs")
    assert (parts_of(first), parts_of(second)) == ({"repairs"}, set())


def api(name: str, shape: str, *parts: str) -> PrivateApi:
    """Return a row of the table for the installed Faust."""
    return PrivateApi("faust.tables.manager:TableManager", name, shape, parts, f"of {name}", "")


def test_only_the_rows_of_the_wanted_parts_are_checked() -> None:
    """The error names each misfit in the table's order, with the found shape and the reason."""
    rows = [
        api("gone", "(self)", "repairs", "page"),
        api("add", "(self, table)", "repairs"),
        api("missing", "property", "page"),
        api("absent", "(self)", "ledger"),
    ]
    demand({"metrics"}, apis=rows, versions={})
    demand({"none"}, apis=rows, versions={})
    with pytest.raises(HostMismatch) as found:
        demand({"page", "repairs"}, apis=rows, versions={})
    first, second, *_ = str(found.value).split("; ")
    assert first.endswith(
        "TableManager.gone: expected (self), found nothing of that name (its use: of gone)"
    )
    assert "TableManager.missing: expected property, found nothing of that name" in second
    assert "absent" not in str(found.value)
    with pytest.raises(HostMismatch, match=r"TableManager\.gone: .*TableManager\.missing: "):
        demand({"page"}, apis=rows, versions={})
    assert list(mismatch_of(rows[1])) == []


def test_versions_are_compared_as_numbers_and_named_with_the_rows() -> None:
    """The error lists all misfits at once; a version suffix changes no comparison."""
    with pytest.raises(HostMismatch) as found:
        demand(
            {"page"},
            apis=[api("gone", "(self)", "page")],
            versions={"faust-streaming": ("99", "100"), "aiokafka": ("0.1", "99")},
        )
    said = str(found.value)
    assert said.startswith("faust-streaming ")
    assert "expected 99 or later, before 100; " in said
    assert "aiokafka 0" not in said.partition("; ")[0]
    assert "TableManager.gone" in said
    cases = [("0.9", False), ("0.10", True), ("0.10.1", True), ("0.11", False), ("0.10rc1", True)]
    for version, fits in cases:
        assert in_range(version, "0.10", "0.11") is fits
    assert not in_range("unknown", "0.10", "0.11")

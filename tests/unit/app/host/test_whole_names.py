"""Names and versions of the host that are absent, and names that resemble ours."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
from aiokafka import TopicPartition
from faust.types import TP

from faust_assigner.app.host import check
from faust_assigner.app.host.clients import faust_tps
from faust_assigner.app.host.mixing import host_of
from faust_assigner.app.host.private_apis import PrivateApi
from faust_assigner.errors import HostMismatch


def test_a_distribution_that_is_absent_is_not_installed() -> None:
    """It is in no range of versions, and the message says the range of each supported one."""
    with pytest.raises(HostMismatch) as caught:
        check.demand((), apis=(), versions={"no-such-host": ("1.0", "2"), "aiokafka": ("0", "99")})
    assert str(caught.value).startswith(
        "no-such-host not installed: expected 1.0 or later, before 2. Install "
    )


def test_a_module_of_the_host_that_cannot_be_imported_has_no_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another error of its import is raised."""

    def api(owner: str) -> PrivateApi:
        return PrivateApi(owner, "x", "()", ("stock",), "why", "test")

    check.shape_of.cache_clear()
    assert check.shape_of(api("no_such_host.module")) == check.NOTHING
    assert check.shape_of(api("json:NoSuchClass")) == check.NOTHING
    assert check.shape_of(api("json:JSONDecoder")) == check.NOTHING

    def broken(name: str) -> ModuleType:
        raise RuntimeError(f"{name} is broken")

    monkeypatch.setattr(check.importlib, "import_module", broken)
    with pytest.raises(RuntimeError, match="broken_host is broken"):
        check.shape_of(api("broken_host"))


def test_an_attribute_that_several_methods_set_is_named_in_order() -> None:
    """The methods of all bases count, not those of other names."""

    class Base:
        """Sets the attribute in two methods."""

        def zip(self) -> None:
            """Set it."""
            self.it = 1

        def add(self) -> None:
            """Set it."""
            self.it = 2

        def other(self) -> None:
            """Set another one, and read it."""
            self.its = self.it

    class Derived(Base):
        """Sets the attribute once more."""

        def more(self) -> None:
            """Set it."""
            self.it = 3

    module = ModuleType("host_of_a_test")
    module.Derived = Derived  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module
    try:
        for shape, found in (
            ("set in __init__", "set in add, more, zip"),
            ("set in zip", "set in zip"),
            ("set in other", "set in add, more, zip"),
        ):
            api = PrivateApi("host_of_a_test:Derived", "it", shape, (), "", "")
            assert check.shape_of(api) == found
    finally:
        del sys.modules[module.__name__]


def test_partitions_become_fausts_own() -> None:
    """Faust's type has methods that aiokafka's has not."""
    found = faust_tps([TopicPartition("b", 1), TopicPartition("a", 2), TopicPartition("b", 1)])
    assert found == {TP("a", 2), TP("b", 1)}
    assert {type(tp) for tp in found} == {TP}


@pytest.mark.parametrize("module", ["faust_assigner_shop", "faust_assignerx.app", "faust_assigner"])
def test_only_modules_within_this_package_are_ours(module: str) -> None:
    """A package whose name begins like ours is the app's own."""
    base = type("Host", (), {"__module__": module})
    ours = type("Ours", (base,), {"__module__": "faust_assigner.app.x"})
    assert host_of(ours) is base
    assert host_of(base) is base

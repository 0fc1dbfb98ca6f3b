"""The shape of each kind of name, and the whole texts of the check of the host."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest

from faust_assigner.app.host import check
from faust_assigner.app.host.check import NOTHING, demand, mismatch_of, shape_of
from faust_assigner.app.host.private_apis import PRIVATE_APIS, PrivateApi
from faust_assigner.errors import HostMismatch


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    shape_of.cache_clear()
    versions = {"faust-streaming": "0.15.4", "mode-streaming": "0.4.2", "aiokafka": "0.14.1"}
    monkeypatch.setattr(check, "_version", lambda name: versions.get(name, "not installed"))
    yield
    shape_of.cache_clear()


def wrapped(function: Any) -> Any:
    """Return a decorated function of a different signature."""

    @functools.wraps(function)
    def other(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return other


class cached_property:  # noqa: N801 the name counts, as with mode's own class
    """A property of a library."""

    def __init__(self, made: Any) -> None:
        self.made = made


class Base:
    """The host's base class."""

    async def begin(self, tps: Any, *, first: int = 3) -> None:
        """Set two attributes."""
        self.began = tps
        self.first: int = first

    def again(self) -> None:
        """Set an attribute and read a second attribute."""
        self.began = self.first


class Host(Base):
    """The host's class."""

    async def begin(self, tps: Any, *, first: int = 4) -> None:
        """Read the attributes."""
        self.seen = (self.began, self.first)

    @staticmethod
    def fixed(number: int) -> int:
        """Return a number."""
        return number

    @classmethod
    async def made(cls, number: int = 1) -> int:
        """Return a number."""
        return number

    @functools.cached_property
    def kept(self) -> int:
        """A value."""
        return 1

    @cached_property
    def kept_by_library(self) -> int:
        """A value."""
        return 2

    @wrapped
    def dressed(self, a: int, /, *rest: int) -> None:
        """A decorated method."""

    @wrapped
    async def dressed_coroutine(self, a: int) -> None:
        """A decorated coroutine."""

    @wrapped
    def sets_dressed(self) -> None:
        """Set an attribute under a decorator."""
        self.worn = 1

    limit = 5


def function_of_module(first: int, second: int = 2) -> None:
    """A function outside of a class."""


LIMIT = 7


def api(name: str, shape: str = "?", owner: str = f"{__name__}:Host") -> PrivateApi:
    """Return a row of the table."""
    return PrivateApi(owner, name, shape, ("page", "ledger"), f"why of {name}", "test")


@pytest.mark.parametrize(
    ("name", "expected", "found"),
    [
        ("begin", "", "async (self, tps, *, first=)"),
        ("again", "", "(self)"),
        ("fixed", "", "(number)"),
        ("made", "", "async (cls, number=)"),
        ("kept", "", "property"),
        ("kept_by_library", "", "property"),
        ("dressed", "", "(self, a, /, *rest)"),
        ("dressed_coroutine", "", "async (self, a)"),
        ("limit", "", "class attribute"),
        ("absent", "", NOTHING),
        ("began", "set in begin", "set in begin"),
        ("began", "set in again", "set in again"),
        ("began", "set in made", "set in again, begin"),
        ("first", "set in again", "set in begin"),
        ("seen", "set in begin", "set in begin"),
        ("worn", "set in sets_dressed", "set in sets_dressed"),
        ("absent", "set in begin", NOTHING),
        ("limit", "set in begin", NOTHING),
    ],
)
def test_the_shape_of_each_kind_of_name(name: str, expected: str, found: str) -> None:
    """A method of a base class sets a name too; a method that only reads the name does not."""
    assert shape_of(api(name, expected)) == found


@pytest.mark.parametrize(
    ("owner", "name", "found"),
    [
        (__name__, "function_of_module", "(first, second=)"),
        (__name__, "LIMIT", "class attribute"),
        (__name__, "absent", NOTHING),
        (f"{__name__}:Absent", "begin", NOTHING),
        ("faust.no_such_module:Host", "begin", NOTHING),
        ("faust.no_such_module", "begin", NOTHING),
    ],
)
def test_an_owner_may_be_a_module_and_may_be_absent(owner: str, name: str, found: str) -> None:
    """An absent module or class is a mismatch, not an error."""
    assert shape_of(api(name, owner=owner)) == found


@pytest.mark.parametrize(
    ("owner", "said"),
    [
        ("faust.app.base:Nope", "faust-streaming 0.15.4: Nope.begin"),
        ("mode.nope", "mode-streaming 0.4.2: mode.nope.begin"),
        ("aiokafka:Nope", "aiokafka 0.14.1: Nope.begin"),
    ],
)
def test_a_mismatch_names_the_distribution_and_the_name(owner: str, said: str) -> None:
    """The whole text, with both shapes and the reason."""
    assert list(mismatch_of(api("begin", "(self)", owner))) == [
        f"{said}: expected (self), found {NOTHING} (its use: why of begin)"
    ]


def test_all_mismatches_of_the_host_are_in_one_error() -> None:
    """Versions come first, by name; then the rows of any wanted part, in the table's order."""
    rows = [
        PrivateApi("mode.nope", "z", "(self)", ("page", "reads"), "first", ""),
        PrivateApi("aiokafka", "__version__", "class attribute", ("reads",), "fits", ""),
        PrivateApi("faust:App", "a", "property", ("reads",), "second", ""),
        PrivateApi("faust:App", "b", "property", ("ledger",), "not wanted", ""),
    ]
    versions = {
        "mode-streaming": ("0.5", "0.6"),
        "aiokafka": ("0.14.1", "0.14.2"),
        "absent": ("1", "2"),
        "faust-streaming": ("0.15", "0.15.4"),
    }
    with pytest.raises(HostMismatch) as found:
        demand(["reads", "metrics"], apis=rows, versions=versions)
    assert str(found.value) == (
        "absent not installed: expected 1 or later, before 2; "
        "faust-streaming 0.15.4: expected 0.15 or later, before 0.15.4; "
        "mode-streaming 0.4.2: expected 0.5 or later, before 0.6; "
        f"mode-streaming 0.4.2: mode.nope.z: expected (self), found {NOTHING} (its use: first); "
        f"faust-streaming 0.15.4: App.a: expected property, found {NOTHING} (its use: second). "
        "Install aiokafka>=0.14,<0.15, faust-streaming>=0.15.3,<0.16, or set FAUST_ASSIGNER_REPAIRS=0 "
        "to run without the repairs and without each part that does not fit"
    )
    demand(["metrics"], apis=rows, versions={"aiokafka": ("0.14.1", "0.14.2")})


def test_the_command_prints_the_count_or_the_mismatches(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All parts are checked; a mismatch goes to the error output, with exit code 1."""
    assert check.main() == 0
    assert capsys.readouterr() == (
        f"{len(PRIVATE_APIS)} names fit: faust-streaming 0.15.4, mode-streaming 0.4.2, aiokafka 0.14.1\n",
        "",
    )
    wanted: list[set[str]] = []

    def refuse(parts: set[str]) -> None:
        wanted.append(parts)
        raise HostMismatch("it does not fit")

    monkeypatch.setattr(check, "demand", refuse)
    assert check.main() == 1
    assert capsys.readouterr() == ("", "it does not fit\n")
    assert wanted == [{part for api in PRIVATE_APIS for part in api.parts}]


@pytest.mark.parametrize(
    ("said", "numbers"),
    [
        ("0.15.3", (0, 15, 3)),
        ("0.15.3rc1", (0, 15, 3)),
        ("1", (1,)),
        ("10.2.30.4+local", (10, 2, 30, 4)),
        ("v0.15.3", ()),
        ("not installed", ()),
        ("release 0.15", ()),
        (".5", ()),
        ("", ()),
    ],
)
def test_a_version_begins_with_its_numbers(said: str, numbers: tuple[int, ...]) -> None:
    """A text that only contains numbers is no version, and lies in no range."""
    assert check._version_numbers(said) == numbers
    assert check.in_range(said, "0.15.3", "0.16") is (numbers == (0, 15, 3))
    assert check.in_range("0.15.10", "0.15.9", "0.15.11")
    assert not check.in_range("0.16", "0.15.3", "0.16")

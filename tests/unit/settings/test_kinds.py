"""The kinds of values at their limits, and the addresses to which requests may go."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from yarl import URL

from faust_assigner.errors import ConfigError, MissingExtra
from faust_assigner.settings.extras import missing_extra, needs
from faust_assigner.settings.places import allowed, is_loopback, is_loopback_url, matches_any
from faust_assigner.settings.schema import (
    FOLDER_TOPIC_OR_OFF,
    LABEL,
    PLACES,
    SPAN,
    SWITCH,
    Kind,
    Setting,
    number,
    one_of,
    read,
    whole,
)

REFUSED = object()


def parsed(kind: Kind[Any], said: Any) -> Any:
    """Return the parsed value, or REFUSED."""
    try:
        return kind.parse(said)
    except (TypeError, ValueError, OverflowError):
        return REFUSED


CASES: list[tuple[Kind[Any], dict[Any, Any]]] = [
    (number("x", least=1.0, most=2.0), {"1": 1.0, "2": 2.0, 0.99: REFUSED, "2.01": REFUSED}),
    (
        number("x"),
        {"0": REFUSED, "5e-324": math.ulp(0.0), "inf": REFUSED, "nan": REFUSED, "-1": REFUSED},
    ),
    (number("x", least=0.0), {"0": 0.0, "-0.1": REFUSED}),
    (
        whole("x", least=2),
        {"2": 2, "1": REFUSED, "1e6": 1_000_000, 3.0: 3, "2.5": REFUSED, "inf": REFUSED, " 7 ": 7},
    ),
    (whole("x", least=0), {str(2**60 + 1): 2**60 + 1, "0": 0, "": REFUSED}),
    (one_of("a", "b"), {"a": "a", "A": REFUSED, "": REFUSED, 1: REFUSED}),
    (
        SWITCH,
        {"1": True, "YES": True, " on ": True, "true": True, True: True}
        | {"0": False, "No": False, "off": False, "false": False, "2": REFUSED, "": REFUSED},
    ),
    (LABEL, {"a" * 255: "a" * 255, "a" * 256: REFUSED, "a b": REFUSED, "a\n": REFUSED, 5: REFUSED}),
    (
        PLACES,
        {
            "": (),
            " A.example:80 , ,10.0.0.0/8": ("a.example:80", "10.0.0.0/8"),
            ("B", " "): ("b",),
            "10.0.0.1/8": ("10.0.0.1/8",),
            "10.0.0.0/99": REFUSED,
        },
    ),
    (
        FOLDER_TOPIC_OR_OFF,
        {
            "/x": Path("/x"),
            "off": None,
            " NO ": None,
            "topic:a.b": "topic:a.b",
            "topic:": REFUSED,
            "topic:..": REFUSED,
            "topic:.": REFUSED,
            "topic:a b": REFUSED,
            f"topic:{'a' * 249}": f"topic:{'a' * 249}",
            f"topic:{'a' * 250}": REFUSED,
        },
    ),
    (
        SPAN,
        {"0.25:4": (0.25, 4.0), (1, 1): (1.0, 1.0), "0:1": REFUSED, "2:4": REFUSED}
        | {"0.5:0.9": REFUSED, "0.5:inf": REFUSED, "1": REFUSED, "1:1:1": REFUSED},
    ),
]


@pytest.mark.parametrize(
    ("kind", "said", "value"),
    [(kind, said, value) for kind, cases in CASES for said, value in cases.items()],
)
def test_a_value_is_taken_up_to_the_edges_of_its_kind(
    kind: Kind[Any], said: Any, value: Any
) -> None:
    """Values beyond the limits are refused."""
    found = parsed(kind, said)
    assert found == value
    assert type(found) is type(value)


def test_an_empty_text_is_no_value_and_zero_is_one() -> None:
    """An empty text means the next source; an error names the setting and the wrong value."""
    setting = Setting("FAUST_ASSIGNER_X", whole("a number", least=0), 7, "meaning")
    assert read(setting, argument=0, environment={setting.name: "3"}) == 0
    assert read(setting, argument="", environment={setting.name: "3"}) == 3
    assert read(setting, argument=None, environment={setting.name: ""}) == 7
    assert read(setting, environment={}) == 7
    assert setting.keyword == "faust_assigner_x"
    with pytest.raises(ConfigError, match="FAUST_ASSIGNER_X must be a number, got 'x'"):
        read(setting, argument="x", environment={setting.name: "3"})


OWN, HERE = URL("http://10.0.0.1:6066"), URL("http://localhost:6066")


@pytest.mark.parametrize(
    ("url", "own", "patterns", "is_allowed"),
    [
        ("http://10.0.0.2:6066", OWN, (), True),
        ("https://shop-1", OWN, (), True),
        ("ftp://shop-1", OWN, (), False),
        ("http:///x", OWN, (), False),
        ("http://127.0.0.1:1", OWN, (), False),
        ("http://127.0.0.1:1", HERE, (), True),
        ("http://127.1:1", OWN, (), False),
        ("http://2130706433:1", OWN, (), False),
        ("http://localhost.:1", OWN, (), False),
        ("http://a.localhost:1", OWN, (), False),
        ("http://[::1]:1", OWN, (), False),
        ("http://[::ffff:127.0.0.1]:1", OWN, (), False),
        ("http://169.254.169.254", OWN, (), False),
        ("http://224.0.0.1", OWN, (), False),
        ("http://0.0.0.0:1", OWN, (), False),
        ("http://shop-1:6066", OWN, ("shop-1",), True),
        ("http://SHOP-1:6066", OWN, ("shop-1:6066",), True),
        ("http://shop-1:6067", OWN, ("shop-1:6066",), False),
        ("http://a.shop.example", OWN, ("*.shop.example",), True),
        ("http://shop.example", OWN, ("*.shop.example",), False),
        ("http://10.1.2.3:1", OWN, ("10.0.0.0/8",), True),
        ("http://11.1.2.3:1", OWN, ("10.0.0.0/8",), False),
        ("http://shop-1", OWN, ("10.0.0.0/8",), False),
        ("http://127.0.0.1:1", OWN, ("127.0.0.0/8",), True),
        ("http://other", OWN, ("shop-1", "other"), True),
    ],
)
def test_requests_go_to_named_places_or_to_all_possible_ones(
    url: str, own: URL, patterns: tuple[str, ...], is_allowed: bool
) -> None:
    """A loopback address is allowed only if the worker is on loopback too."""
    assert allowed(URL(url), own, patterns) is is_allowed


def test_a_loopback_address_is_known_in_every_form() -> None:
    """A text without a valid URL is no loopback address."""
    assert is_loopback_url("http://127.0.0.2:1/x")
    assert not is_loopback_url("http://shop-1")
    assert not is_loopback_url("http://[x")
    assert is_loopback("localhost")
    assert not is_loopback("localhost.example")
    assert not matches_any(URL("http://a"), ())


def test_a_missing_package_is_named_with_the_extra_that_installs_it() -> None:
    """Other packages and missing modules of this package keep their error."""
    found = missing_extra(ModuleNotFoundError(name="grpc.aio"))
    assert found is not None
    assert "faust-assigner[service]" in str(found)
    assert missing_extra(found) is found
    given = missing_extra(ModuleNotFoundError(name="odd.part"), "spark")
    assert given is not None
    assert "odd is not installed" in str(given)
    for name in ("odd", "faust_assigner.gone", "", None):
        assert missing_extra(ModuleNotFoundError(name=name)) is None
    with pytest.raises(ModuleNotFoundError) as kept, needs("spark"):
        raise ModuleNotFoundError(name="faust_assigner.gone")
    assert not isinstance(kept.value, MissingExtra)

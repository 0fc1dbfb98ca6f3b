"""The full text of each error about settings: all wrong names in order, with similar settings."""

from __future__ import annotations

import math
from typing import Any

import pytest
from yarl import URL

from faust_assigner.errors import ConfigError
from faust_assigner.settings.extras import missing_extra
from faust_assigner.settings.known import check_environment, check_keywords
from faust_assigner.settings.places import matches_any
from faust_assigner.settings.schema import PLACES, SWITCH, Setting, number, one_of, read, whole

END = " (docs/reference/settings.md lists them all)"


@pytest.mark.parametrize(
    ("names", "env_prefix", "message"),
    [
        (
            ["FAUST_ASSIGNER_RAK", "PATH", "FAUST_ASSIGNER_RACK", "FAUST_ASSIGNER_CAPACTY"],
            None,
            "FAUST_ASSIGNER_CAPACTY: did you mean FAUST_ASSIGNER_CAPACITY?; "
            "FAUST_ASSIGNER_RAK: did you mean FAUST_ASSIGNER_RACK?",
        ),
        (
            ["faust_assigner_rack", "FAUST_ASSIGNER_XQZJ"],
            None,
            "FAUST_ASSIGNER_XQZJ: no setting has a similar name; "
            "faust_assigner_rack: did you mean FAUST_ASSIGNER_RACK?",
        ),
        (
            [
                "SHOP_FAUST_ASSIGNER_RACK", "SHOP_FAUST_ASSIGNER_RAK", "FAUST_ASSIGNER_RAK",
                "OTHER_FAUST_ASSIGNER_X",
            ],
            "SHOP_",
            "FAUST_ASSIGNER_RAK: did you mean FAUST_ASSIGNER_RACK?; "
            "SHOP_FAUST_ASSIGNER_RAK: did you mean SHOP_FAUST_ASSIGNER_RACK?",
        ),
        (
            ["FAUST_ASSIGNER_FAUST_ASSIGNER_RACK", "FAUST_ASSIGNER_FAUST_ASSIGNER_RAK"],
            "FAUST_ASSIGNER",
            "FAUST_ASSIGNER_FAUST_ASSIGNER_RAK: did you mean FAUST_ASSIGNER_FAUST_ASSIGNER_RACK?",
        ),
        (
            ["shop_FAUST_ASSIGNER_RACK"],
            "SHOP",
            "shop_FAUST_ASSIGNER_RACK: did you mean SHOP_FAUST_ASSIGNER_RACK?",
        ),
    ],
)  # fmt: skip
def test_each_wrong_variable_is_named_with_its_nearest_setting(
    names: list[str], env_prefix: str | None, message: str
) -> None:
    """The names are in alphabetical order; correct names and foreign prefixes are left out."""
    with pytest.raises(ConfigError) as refusal:
        check_environment(names, env_prefix=env_prefix)
    assert str(refusal.value) == f"Unknown settings in the environment: {message}{END}"


def test_each_wrong_keyword_is_named_with_its_nearest_setting() -> None:
    """Faust's own keywords and settings in capital letters are correct."""
    names = [
        "id",
        "faust_assigner_rak",
        "FAUST_ASSIGNER_RACK",
        "faust_assigner_capcity",
        "Faust_Assigner_rack",
    ]
    with pytest.raises(ConfigError) as refusal:
        check_keywords(names)
    assert str(refusal.value) == (
        "Unknown keywords of faust.App: "
        "Faust_Assigner_rack: did you mean faust_assigner_rack?; "
        "faust_assigner_capcity: did you mean faust_assigner_capacity?; "
        f"faust_assigner_rak: did you mean faust_assigner_rack?{END}"
    )
    check_keywords(["id", "FAUST_ASSIGNER_RACK", "faust_assigner_rack"])


PLAIN: Setting[float] = Setting("NAME", number("1 or more", least=1.0, most=9.5), 4.0, "m")


@pytest.mark.parametrize(
    ("argument", "environment", "value"),
    [
        (None, {}, 4.0),
        ("", {"NAME": ""}, 4.0),
        ("", {"NAME": "9.5"}, 9.5),
        (1, {"NAME": "2"}, 1.0),
        (None, {"NAME": "2", "OTHER": "3"}, 2.0),
    ],
)
def test_the_first_given_value_counts(
    argument: object, environment: dict[str, str], value: float
) -> None:
    """The order is argument, environment, default."""
    assert read(PLAIN, argument=argument, environment=environment) == value


@pytest.mark.parametrize(
    ("kind", "said", "words"),
    [
        (PLAIN.kind, 0, "1 or more"),
        (PLAIN.kind, 9.6, "1 or more"),
        (PLAIN.kind, "nan", "1 or more"),
        (whole("2 or more", least=2), "1", "2 or more"),
        (whole("2 or more", least=2), 2.5, "2 or more"),
        (one_of("a", "b"), "c", "one of a, b"),
        (SWITCH, "maybe", "1, yes, on, true or 0, no, off, false"),
    ],
)
def test_a_wrong_value_is_an_error_although_a_later_source_is_right(
    kind: Any, said: object, words: str
) -> None:
    """0 and False are values; the error names the setting, its kind and the value."""
    setting: Setting[Any] = Setting("NAME", kind, None, "m")
    with pytest.raises(ConfigError) as refusal:
        read(setting, argument=said, environment={"NAME": "2"})
    assert str(refusal.value) == f"NAME must be {words}, got {said!r}"


def test_false_is_a_value_of_a_switch() -> None:
    """False does not mean unset."""
    setting: Setting[bool] = Setting("NAME", SWITCH, True, "m")
    assert read(setting, argument=False, environment={"NAME": "1"}) is False
    assert setting.keyword == "name"


@pytest.mark.parametrize(
    ("said", "value"),
    [("7", 7), (" 7 ", 7), ("7.0", 7), ("7e1", 70), (7.0, 7), (True, 1), (2, 2), ("\u0667", 7)],
)
def test_a_whole_number_may_be_written_in_many_ways(said: object, value: int) -> None:
    """The parsed value is always an int."""
    found = whole("1 or more", least=1).parse(said)
    assert (found, type(found)) == (value, int)


@pytest.mark.parametrize("said", ["", "x", "-7", "7.5", "inf", "-inf", "nan", math.inf, None, [7]])
def test_no_other_text_is_a_whole_number(said: object) -> None:
    """A number below the minimum is refused too."""
    with pytest.raises((TypeError, ValueError, OverflowError)):
        whole("1 or more", least=1).parse(said)


def test_a_number_without_limits_is_above_zero_and_finite() -> None:
    """The limits themselves are allowed."""
    anything = number("above 0")
    assert anything.parse("1e-300") == 1e-300
    assert anything.parse(1e300) == 1e300
    for said in (0, -1, "inf", "nan"):
        with pytest.raises(ValueError, match=str(said)):
            anything.parse(said)
    assert [number("1 to 2", least=1.0, most=2.0).parse(n) for n in (1, 2)] == [1.0, 2.0]
    for said in (0.999, 2.001):
        with pytest.raises(ValueError, match=str(said)):
            number("1 to 2", least=1.0, most=2.0).parse(said)


def test_places_are_lower_case_patterns_and_each_network_is_checked() -> None:
    """A text with commas and a list are accepted; blanks and empty parts are dropped."""
    assert PLACES.parse(" Shop-1:6066, ,*.Example.COM,10.0.0.0/8") == (
        "shop-1:6066",
        "*.example.com",
        "10.0.0.0/8",
    )
    assert PLACES.parse(["A", " "]) == ("a",)
    for said in ("a,10.0.0.0/99", ["10.0.0.0/8", "x/8"]):
        with pytest.raises(ValueError, match="does not appear to be"):
            PLACES.parse(said)
    assert matches_any(URL("http://Shop-1:6066"), ("shop-1:6066",))
    assert not matches_any(URL("http://shop-1:6067"), ("shop-1:6066",))
    assert not matches_any(URL("http://shop-1"), ("10.0.0.0/8",))
    assert matches_any(URL("http://10.9.9.9:1"), ("shop", "10.0.0.0/8"))


def test_a_missing_package_without_a_name_stays_as_it_is() -> None:
    """Unnamed modules, modules of this package and packages outside any extra keep their error."""
    for error in (
        ModuleNotFoundError("?"),
        ModuleNotFoundError("?", name=""),
        ModuleNotFoundError("?", name="faust_assigner.nothing"),
    ):
        assert missing_extra(error) is None
        assert missing_extra(error, "broker") is None
    unknown = ModuleNotFoundError("?", name="nothing.at.all")
    assert missing_extra(unknown) is None
    found = missing_extra(unknown, "broker")
    assert found is not None
    assert str(found) == "nothing is not installed: pip install 'faust-assigner[broker]'"
    assert missing_extra(found, "otel") is found
    known = missing_extra(ModuleNotFoundError("?", name="grpc.aio"))
    assert str(known) == "grpc is not installed: pip install 'faust-assigner[service]'"

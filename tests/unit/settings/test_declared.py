"""Settings declared as the fields of a dataclass, and their texts on pages and in help."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from faust_assigner.errors import ConfigError
from faust_assigner.settings.schema import (
    Kind,
    Setting,
    declared,
    declared_in,
    number,
    one_of,
    read,
    whole,
)

HOSTS = Kind("a name of a host", str, "HOST")
COUNT = whole("a whole number, 2 or more", least=2)
RATE = number("a rate, from 0.5 to 8", least=0.5, most=8)


@dataclass(frozen=True)
class Options:
    """Two settings between fields that are none."""

    plain: int = 3
    host: str = declared(HOSTS, "a", "the host")
    other: int = field(default=7, metadata={"unit": "s"})
    count: int | None = declared(COUNT, None, "the number", shown="the number of tasks")


def test_a_declared_field_is_a_setting_under_its_own_name() -> None:
    """Its default is the field's default, and it is no keyword of an app."""
    assert declared_in(Options, lambda name: f"SHOP_{name.upper()}") == {
        "host": Setting("SHOP_HOST", HOSTS, "a", "the host", is_keyword=False),
        "count": Setting(
            "SHOP_COUNT", COUNT, None, "the number", "the number of tasks", is_keyword=False
        ),
    }
    assert Options() == Options(3, "a", 7, None)


@pytest.mark.parametrize(
    ("kind", "default", "shown", "texts"),
    [
        (HOSTS, "a", "", ("a", "HOST")),
        (COUNT, 12, "", ("12", COUNT.words)),
        (COUNT, None, "the number of tasks", ("the number of tasks", COUNT.words)),
        (RATE, 2.0, "", ("2", RATE.words)),
        (RATE, 0.25, "", ("0.25", RATE.words)),
        (RATE, 1e9, "", ("1e+09", RATE.words)),
        (HOSTS, True, "", ("1", "HOST")),
        (HOSTS, False, "", ("0", "HOST")),
        (HOSTS, False, "off", ("off", "HOST")),
        (HOSTS, None, "", ("None", "HOST")),
    ],
)
def test_a_setting_has_its_default_and_its_value_as_texts(
    kind: Any, default: Any, shown: str, texts: tuple[str, str]
) -> None:
    """A kind without a name of its value shows its words; switches are 1 and 0."""
    found = Setting("FAUST_ASSIGNER_X_Y", kind, default, "m", shown)
    assert (found.default_text, found.metavar) == texts
    assert found.keyword == "faust_assigner_x_y"


@pytest.mark.parametrize(
    ("argument", "environment", "value"),
    [
        (None, {}, 5),
        ("", {}, 5),
        (None, {"X": ""}, 5),
        (None, {"X": "8"}, 8),
        (None, {"x": "8", "Y": "9"}, 5),
        ("7", {"X": "8"}, 7),
        ("", {"X": "8"}, 8),
        (3, {"X": "wrong"}, 3),
    ],
)
def test_an_argument_goes_before_the_environment_and_empty_is_not_given(
    argument: object, environment: dict[str, str], value: int
) -> None:
    """Only the first given value is parsed."""
    setting = Setting("X", COUNT, 5, "m")
    assert read(setting, argument=argument, environment=environment) == value


@pytest.mark.parametrize("said", [0, False, "1", 1, "nan", "inf", 2.5, "2.5", "x", [], -3, "1e999"])
def test_a_wrong_value_is_refused_with_the_name_and_the_value(said: object) -> None:
    """Zero is a given value and not a missing one."""
    setting = Setting("X", COUNT, 5, "m")
    with pytest.raises(ConfigError) as refused:
        read(setting, argument=said, environment={"X": "8"})
    assert str(refused.value) == f"X must be a whole number, 2 or more, got {said!r}"


@pytest.mark.parametrize(
    ("said", "value"), [("0.5", 0.5), (8, 8.0), ("8.000001", None), (0.49, None), ("inf", None)]
)
def test_a_number_may_be_at_its_bounds(said: object, value: float | None) -> None:
    """Both bounds belong to the range."""
    setting = Setting("X", RATE, 1.0, "m")
    if value is None:
        with pytest.raises(ConfigError):
            read(setting, argument=said, environment={})
    else:
        assert read(setting, argument=said, environment={}) == value
    assert read(Setting("X", COUNT, 5, "m"), argument=" 12 ", environment={}) == 12
    assert read(Setting("X", COUNT, 5, "m"), argument="1e6", environment={}) == 1_000_000
    big = 9_007_199_254_740_993  # a float would lose the last digit
    assert read(Setting("X", COUNT, 5, "m"), argument=str(big), environment={}) == big


@pytest.mark.parametrize("said", ["", "o", "on", "nof", "off,on", "ON", None, True])
def test_only_a_whole_name_is_one_of_the_names(said: object) -> None:
    """A part of a name, or of two names side by side, is no name."""
    setting = Setting("X", one_of("one", "off"), "one", "m")
    assert read(setting, argument="off", environment={}) == "off"
    if said in ("", None):
        assert read(setting, argument=said, environment={}) == "one"
        return
    with pytest.raises(ConfigError, match="X must be one of one, off, got "):
        read(setting, argument=said, environment={})

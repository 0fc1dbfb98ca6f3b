"""The table of settings determines the accepted values and the reference page."""

from __future__ import annotations

import ast
import functools
import math
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from faust_assigner.errors import ConfigError
from faust_assigner.pipeline.cluster import client_properties
from faust_assigner.settings import schema, table
from faust_assigner.settings.schema import Setting, read
from faust_assigner.settings.service import OPTIONS

ROOT = Path(__file__).resolve().parents[3]
REFERENCE = ROOT / "docs" / "reference"
by_name = pytest.mark.parametrize("setting", table.SETTINGS, ids=lambda setting: setting.keyword)


def test_the_pages_show_the_tables() -> None:
    """Each setting has a row; tests/unit/docs compares the rows."""
    for name, settings in (("settings.md", table.SETTINGS), ("service.md", OPTIONS)):
        text = (REFERENCE / name).read_text()
        assert all(f"`{one.name}`" in text for one in settings)


def test_an_argument_goes_before_the_environment_before_the_default() -> None:
    """An empty value falls through to the next source."""
    environment = {"FAUST_ASSIGNER_CAPACITY": "2"}
    assert read(table.CAPACITY, argument="3", environment=environment) == 3.0
    assert read(table.CAPACITY, argument="", environment=environment) == 2.0
    assert read(table.CAPACITY, argument=None, environment={"FAUST_ASSIGNER_CAPACITY": ""}) == 1.0
    assert (
        read(table.BATCHED_REPLAY, argument=0, environment={"FAUST_ASSIGNER_BATCHED_REPLAY": "1"})
        is False
    )


@pytest.mark.parametrize("setting", [*table.SETTINGS, *OPTIONS], ids=lambda setting: setting.name)
def test_a_number_in_the_text_of_a_default_is_the_default(setting: Setting[Any]) -> None:
    """The page showed 16 MiB for a limit of 64 MiB."""
    number = re.match(r"(\d+)(, (\d+) MiB)?$", setting.default_text)
    if number and isinstance(setting.default, int) and not isinstance(setting.default, bool):
        assert int(number[1]) == setting.default
        assert number[3] is None or int(number[3]) * 1024 * 1024 == setting.default


def test_a_size_is_shown_in_mib_too() -> None:
    """A number of bytes is hard to read."""
    assert table.OVERLAY_BYTES.default_text == "67108864, 64 MiB"
    assert table.LEDGER_FILE_BYTES.default_text == "16777216, 16 MiB"
    assert table.GROUP_RECORD_BYTES.default_text == "1000000"


@pytest.mark.parametrize("name", ["CACHE", "LEDGER", "RETIRE_FILE"])
def test_a_tilde_is_the_home_folder(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No shell replaces it in a keyword, a unit of systemd or a compose file."""
    monkeypatch.setenv("HOME", "/home/shop")
    found = read(getattr(table, name), argument="~/x", environment={})
    assert found == Path("/home/shop/x")
    assert read(table.LEDGER, argument="topic:x", environment={}) == "topic:x"
    assert read(table.LEDGER, argument="~/off", environment={}) == Path("/home/shop/off")


WRONG: dict[str, tuple[Any, ...]] = {
    "RACK": ("a b", "x" * 256, 7),
    "CAPACITY": ("none", "0", "nan", "inf", -1, 1e7),
    "GROUP_RECORD_BYTES": ("-1", "1.5", "x"),
    "URLS": ("10.0.0.0/99", 7),
    "REPAIRS": ("maybe", 2),
    "BATCHED_REPLAY": ("maybe",),
    "WEIGHTS_MODE": ("dark",),
    "WEIGHTS_MAX_AGE_S": ("0", "soon", "nan"),
    "WEIGHTS_CLAMP": ("0.25", "2:4", "x:y", "0:inf"),
    "LEDGER": (7,),
    "LEDGER_FILE_BYTES": ("0", "nan"),
    "LEDGER_BYTES": ("0", "1.5"),
    "LEDGER_SAMPLE_S": ("0", "nan"),
    "CACHE": (7,),
}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, values in WRONG.items() for v in values])
def test_a_wrong_value_is_named_with_its_setting(name: str, value: Any) -> None:
    """The setting's name shows the reader which value to change."""
    setting = getattr(table, name)
    with pytest.raises(ConfigError) as found:
        read(setting, argument=value, environment={})
    assert str(found.value) == f"{setting.name} must be {setting.kind.words}, got {value!r}"


@pytest.mark.parametrize("setting", [*table.SETTINGS, *OPTIONS], ids=lambda setting: setting.name)
def test_whatever_is_given_is_taken_or_refused(setting: Setting[Any]) -> None:
    """A value of "inf" records caused an OverflowError that ended each round of a leader."""
    for value in ("inf", "-inf", "1e400", "nan", " ", "None", "5s", "off", "-1", "1e30"):
        with suppress(ConfigError):
            read(setting, environment={setting.name: value})


@by_name
def test_whatever_is_said_is_a_value_or_named_as_none(setting: Setting[Any]) -> None:
    """An odd value must neither end the worker nor make the leader forget previous owners."""
    values = ("inf", "-inf", "1e400", 10**400, float("nan"), b"\xff", "\x00", object())
    for value in values:
        with suppress(ConfigError):
            found = read(setting, argument=value, environment={})
            assert not isinstance(found, float) or math.isfinite(found), value


@by_name
def test_the_default_is_a_value_of_its_kind(setting: Setting[Any]) -> None:
    """A default equals the value parsed from its own text; of a path, after ``~``."""
    default = setting.default
    if default not in (None, ()):
        expected = default.expanduser() if isinstance(default, Path) else default
        assert setting.kind.parse(default) == expected


@functools.cache
def names_in_code() -> frozenset[str]:
    """Names and attributes in the package's code, except in the table; of files with a setting's name."""
    words = {setting.name.removeprefix("FAUST_ASSIGNER_") for setting in table.SETTINGS}
    texts = (
        path.read_text()
        for path in sorted((ROOT / "faust_assigner").rglob("*.py"))
        if path != ROOT / "faust_assigner" / "settings" / "table.py"
    )
    nodes = (
        node
        for text in texts
        if words.intersection(re.findall(r"\w+", text))
        for node in ast.walk(ast.parse(text))
    )
    return frozenset(
        node.id if isinstance(node, ast.Name) else node.attr
        for node in nodes
        if isinstance(node, (ast.Name, ast.Attribute))
    )


@by_name
def test_a_setting_is_read_by_a_module(setting: Setting[Any]) -> None:
    """A setting that no code reads would have no effect."""
    assert setting.name.removeprefix("FAUST_ASSIGNER_") in names_in_code()


def test_no_setting_is_missing_in_the_table() -> None:
    """Each FAUST_ASSIGNER_ name in the sources is in a table, and only the settings package reads it."""
    known = {setting.name for setting in (*table.SETTINGS, *OPTIONS)}
    for path in sorted((ROOT / "faust_assigner").rglob("*.py")):
        text = path.read_text()
        named = set(re.findall(r"FAUST_ASSIGNER_[A-Z_]*[A-Z]", text))
        # Kafka's own properties are a family, described at the top of the page.
        assert {name for name in named if not name.startswith("FAUST_ASSIGNER_KAFKA")} <= known, (
            path
        )
        if path.parent.name == "settings" or not named & known:
            continue
        literals = [
            node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)
        ]
        assert not known.intersection(
            literal for literal in literals if isinstance(literal, str)
        ), path


def test_kafkas_own_properties_are_told_as_a_family() -> None:
    """The page says how a property is written as a name of the environment, and the reader reads it so."""
    assert "`FAUST_ASSIGNER_KAFKA_X_Y` for the property" in (REFERENCE / "settings.md").read_text()
    found = client_properties(None, {"FAUST_ASSIGNER_KAFKA_SASL_MECHANISM": "PLAIN"})
    assert found["sasl.mechanism"] == "PLAIN"


def test_numbers_are_read_as_people_write_them() -> None:
    """1e6 is a whole number, and networks are lower-cased."""
    assert read(table.LEDGER_BYTES, argument="1e6", environment={}) == 1_000_000
    assert read(table.URLS, argument=" A.B , 10.0.0.0/8,", environment={}) == ("a.b", "10.0.0.0/8")
    assert schema.SPAN.parse("0.02:50") == (0.02, 50.0)

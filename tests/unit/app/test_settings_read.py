"""The sources of an app's settings in their order; a wrong value is an error."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.app import settings
from faust_assigner.errors import ConfigError
from faust_assigner.settings.table import CAPACITY, FOLLOW_UP_S, RACK


class Conf:
    """Faust's settings of an app with the prefix ``SHOP_``."""

    env_prefix = "SHOP_"

    def __init__(self, env: dict[str, str], **attributes: Any) -> None:
        self.env = env
        vars(self).update(attributes)

    def getenv(self, name: str) -> str | None:
        """Return the variable with the prefix."""
        return self.env.get(f"SHOP_{name}")


def app_of(
    env: dict[str, str] | None = None,
    *,
    options: dict[str, Any] | None = None,
    source: dict[str, Any] | None = None,
    **attributes: Any,
) -> Any:
    """Return an app with these variables, keywords and configuration source."""
    return SimpleNamespace(
        conf=Conf(env or {}, **attributes),
        _default_options=("shop", options or {}),
        _config_source=source,
    )


#: The sources of the rack setting, in order of precedence.
PLACES: list[dict[str, Any]] = [
    {RACK.keyword: "attribute"},
    {"options": {RACK.keyword: "keyword"}},
    {"options": {RACK.name: "keyword-in-capitals"}},
    {"env": {f"SHOP_{RACK.name}": "variable-with-prefix"}},
    {"env": {RACK.name: "variable"}},
]


@pytest.mark.parametrize("first", range(len(PLACES) + 1))
def test_each_place_of_a_setting_goes_before_the_next(first: int) -> None:
    """The default comes last."""
    given: dict[str, Any] = {}
    for place in PLACES[first:]:
        for name, value in place.items():
            given[name] = {**given.get(name, {}), **value} if isinstance(value, dict) else value
    expected = None
    if first < len(PLACES):
        (value,) = PLACES[first].values()
        expected = next(iter(value.values())) if isinstance(value, dict) else value
    assert settings.read(app_of(**given), RACK) == expected


def test_a_configuration_source_goes_before_the_keywords_of_the_app() -> None:
    """Faust has the same order; a missing source causes no error."""
    app = app_of(options={RACK.keyword: "app", "other": 1}, source={RACK.keyword: "source"})
    assert settings.read(app, RACK) == "source"
    assert settings.keywords(app) == {RACK.keyword: "source", "other": 1}
    assert settings.keywords(SimpleNamespace()) == {}


def test_a_keyword_of_zero_is_a_value() -> None:
    """Zero differs from an absent keyword."""
    app = app_of({FOLLOW_UP_S.name: "7"}, options={FOLLOW_UP_S.keyword: 0})
    assert settings.read(app, FOLLOW_UP_S) == 0


def test_a_wrong_value_is_logged_with_the_default_that_counts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Only ``read_or_default`` logs; ``read`` raises the error."""
    app = app_of({CAPACITY.name: "much"})
    with pytest.raises(ConfigError, match=CAPACITY.name):
        settings.read(app, CAPACITY)
    assert caplog.messages == []
    assert settings.read_or_default(app, CAPACITY) == 1.0
    assert len(caplog.messages) == 1
    assert caplog.messages[0].endswith(f"; using the default {CAPACITY.shown or '1.0'}")
    assert settings.read_or_default(app_of({CAPACITY.name: "2.5"}), CAPACITY) == 2.5


def test_a_default_without_a_text_of_its_own_is_shown_as_it_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Any error other than ConfigError is raised."""

    def wrong(app: Any) -> int:
        raise ConfigError("X must be a number")

    def broken(app: Any) -> int:
        raise ValueError("a bug")

    assert settings.or_default(wrong, "app", 5) == 5
    assert settings.or_default(wrong, "app", 6, "six") == 6
    assert caplog.messages == [
        "X must be a number; using the default 5",
        "X must be a number; using the default six",
    ]
    assert settings.or_default(lambda app: len(app), "app", 9) == 3
    with pytest.raises(ValueError, match="a bug"):
        settings.or_default(broken, "app", 5)


@pytest.mark.parametrize(("value", "found"), [("w1", "w1"), ("", None), (None, None)])
def test_the_instance_id_is_fausts(value: str | None, found: str | None) -> None:
    """An empty id counts as absent."""
    conf = SimpleNamespace(consumer_group_instance_id=value)
    assert settings.instance_id(SimpleNamespace(conf=conf)) == found


def test_an_instance_id_that_cannot_travel_is_an_error() -> None:
    """The error names the setting."""
    conf = SimpleNamespace(consumer_group_instance_id="x" * 100_000)
    with pytest.raises(ConfigError, match="consumer_group_instance_id"):
        settings.instance_id(SimpleNamespace(conf=conf))


def test_names_that_are_no_settings_are_refused_wherever_they_are() -> None:
    """Keywords, configuration attributes and prefixed variables are checked."""
    settings.check_names(app_of({f"SHOP_{RACK.name}": "r"}, options={RACK.keyword: "r"}))
    wrong: list[dict[str, Any]] = [
        {"options": {"faust_assigner_rak": "r"}},
        {"faust_assigner_rak": "r"},
        {"source": {"faust_assigner_rak": "r"}},
        {"env": {"FAUST_ASSIGNER_RAK": "r"}},
        {"env": {"SHOP_FAUST_ASSIGNER_RAK": "r"}},
    ]
    for given in wrong:
        with pytest.raises(ConfigError, match=r"(?i)faust_assigner_rak"):
            settings.check_names(app_of(**given))


@pytest.mark.parametrize(
    ("interval_s", "session_s", "is_refused"),
    [(3.0, 10.0, False), (9.99, 10.0, False), (10.0, 10.0, True), (10.5, 10.0, True)],
)
def test_a_heartbeat_comes_before_its_session_ends(
    interval_s: float, session_s: float, is_refused: bool
) -> None:
    """An interval equal to the session is refused."""
    conf = SimpleNamespace(broker_heartbeat_interval=interval_s, broker_session_timeout=session_s)
    if not is_refused:
        settings.check_heartbeat(SimpleNamespace(conf=conf))
        return
    with pytest.raises(ConfigError, match=rf"\({interval_s:g} s\).*\({session_s:g} s\)"):
        settings.check_heartbeat(SimpleNamespace(conf=conf))

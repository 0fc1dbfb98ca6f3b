"""Settings and addresses whose rule shows only with a second value."""

from __future__ import annotations

import pytest

from faust_assigner.errors import ConfigError
from faust_assigner.settings.extras import missing_extra
from faust_assigner.settings.known import check_environment
from faust_assigner.settings.places import is_loopback
from faust_assigner.settings.schema import Setting, number, read, whole


def test_the_extra_of_the_place_goes_before_the_extra_of_the_package() -> None:
    """kio is a part of several extras; our own modules belong to none."""
    found = missing_extra(ModuleNotFoundError("x", name="kio.schema"), "broker")
    assert found is not None
    assert str(found) == "kio is not installed: pip install 'faust-assigner[broker]'"
    default = missing_extra(ModuleNotFoundError("x", name="kio.schema"))
    assert default is not None
    assert "[clients]" in str(default)
    ours = ModuleNotFoundError("x", name="faust_assigner.lost")
    assert (missing_extra(ours, "broker"), missing_extra(ModuleNotFoundError("x"))) == (None, None)
    assert missing_extra(ModuleNotFoundError("x", name="nowhere")) is None


@pytest.mark.parametrize("prefix", ["SHOP", "SHOP_", "SHOP__"])
def test_the_prefix_of_an_app_may_end_in_underscores(prefix: str) -> None:
    """Faust's own prefix has none; a wrong name is one complaint."""
    check_environment(["SHOP_FAUST_ASSIGNER_RACK", "FAUST_ASSIGNER_RACK"], env_prefix=prefix)
    with pytest.raises(ConfigError) as refused:
        check_environment(["SHOP_FAUST_ASSIGNER_RAK"], env_prefix=prefix)
    assert str(refused.value) == (
        "Unknown settings in the environment: SHOP_FAUST_ASSIGNER_RAK: did you mean "
        "SHOP_FAUST_ASSIGNER_RACK? (docs/reference/settings.md lists them all)"
    )


@pytest.mark.parametrize(
    ("host", "is_local"),
    [("localhost", True), ("a.localhost", True), ("mylocalhost", False), ("localhost.a", False)],
)
def test_only_names_of_the_machine_itself_are_loopback(host: str, is_local: bool) -> None:
    """A name that merely ends alike is another machine's."""
    assert is_loopback(host) is is_local


SECONDS = Setting("FAUST_ASSIGNER_X", number("a number of seconds"), 7.0, "the time")
COUNT = Setting("FAUST_ASSIGNER_Y", whole("a whole number, 2 or more", least=2), 3, "the number")


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        *((SECONDS, said) for said in (10**400, "1e400", "nan", "x", 0, -1)),
        *((COUNT, said) for said in (2.5, "2.5", "1e400", float("inf"), 1, "x", "-3")),
    ],
)
def test_a_number_that_cannot_be_one_is_refused_with_its_name(
    setting: Setting[float], said: object
) -> None:
    """A number beyond all bounds is refused like a word."""
    with pytest.raises(ConfigError) as refused:
        read(setting, argument=said, environment={})
    assert str(refused.value) == f"{setting.name} must be {setting.kind.words}, got {said!r}"


def test_an_argument_goes_before_the_environment_and_an_empty_one_does_not() -> None:
    """A zero is a value."""
    environment = {"FAUST_ASSIGNER_Y": "1e6"}
    found = [read(COUNT, argument=said, environment=environment) for said in ("5", "", None)]
    assert found == [5, 1_000_000, 1_000_000]
    assert read(COUNT, environment={"FAUST_ASSIGNER_Y": ""}) == 3
    with pytest.raises(ConfigError):
        read(COUNT, argument=0, environment=environment)

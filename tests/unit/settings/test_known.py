"""Environment variables and keywords with our prefix that are no settings."""

from __future__ import annotations

import pytest

from faust_assigner.errors import ConfigError
from faust_assigner.settings.known import (
    IN_THE_ENVIRONMENT,
    KEYWORDS,
    check_environment,
    check_keywords,
)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("FAUST_ASSIGNER_LEGER", "FAUST_ASSIGNER_LEDGER"),
        ("FAUST_ASSIGNER_STALE_READ", "FAUST_ASSIGNER_STALE_READS_S"),
        ("faust_assigner_rack", "FAUST_ASSIGNER_RACK"),
        ("Faust_Assigner_Capacity", "FAUST_ASSIGNER_CAPACITY"),
        ("FAUST_ASSIGNER_WARMUP", "FAUST_ASSIGNER_WARMUPS"),
        ("FAUST_ASSIGNER_BINDS", "FAUST_ASSIGNER_BIND"),
    ],
)
def test_a_misspelled_variable_is_refused_with_the_nearest_name(name: str, nearest: str) -> None:
    """Letter case counts: the environment's names are case-sensitive."""
    with pytest.raises(ConfigError, match=rf"{name}: did you mean {nearest}\?"):
        check_environment([name, "PATH"])


@pytest.mark.parametrize("name", ["SHOP_FAUST_ASSIGNER_LEGER", "shop_faust_assigner_ledger"])
def test_fausts_own_prefix_is_looked_through(name: str) -> None:
    """With ``env_prefix`` a setting has two names, and both may be misspelled."""
    check_environment(["SHOP_FAUST_ASSIGNER_LEDGER", "FAUST_ASSIGNER_LEDGER"], env_prefix="SHOP_")
    check_environment([name])  # belongs to a different app
    with pytest.raises(ConfigError, match=f"{name}: did you mean SHOP_FAUST_ASSIGNER_LEDGER"):
        check_environment([name], env_prefix="SHOP")
    with pytest.raises(ConfigError, match="FAUST_ASSIGNER_LEGER: did you mean FAUST_ASSIGNER_LED"):
        check_environment(["FAUST_ASSIGNER_LEGER"], env_prefix="SHOP")


@pytest.mark.parametrize(
    "name",
    [
        "FAUST_ASSIGNER_KAFKA_SASL_PASSWORD",
        "FAUST_ASSIGNER_SERVICE_HOST",
        "FAUST_ASSIGNER_SERVICE_PORT_GRPC",
        "FAUST_ASSIGNER_PORT",
        "FAUST_ASSIGNER_PORT_50051_TCP_ADDR",
        "FAUST_ASSIGNER_BROKER_SERVICE_HOST",
        "MY_FAUST_ASSIGNER_LEGER",
        *sorted(IN_THE_ENVIRONMENT),
    ],
)
def test_a_known_variable_is_taken(name: str) -> None:
    """Variables of ours, of the service, of Kafka's properties, and of a Kubernetes Service."""
    check_environment([name])


def test_a_variable_like_no_setting_is_refused_without_a_guess() -> None:
    """A wrong guess would mislead the reader."""
    with pytest.raises(ConfigError, match="FAUST_ASSIGNER_XYZZY_QQ: no setting has a similar name"):
        check_environment(["FAUST_ASSIGNER_XYZZY_QQ"])


def test_all_wrong_names_are_told_at_once() -> None:
    """The error lists every unknown name."""
    with pytest.raises(ConfigError, match=r"FAUST_ASSIGNER_LEGER: .*; FAUST_ASSIGNER_RAK: "):
        check_environment(["FAUST_ASSIGNER_RAK", "FAUST_ASSIGNER_LEGER", "FAUST_ASSIGNER_RACK"])


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("faust_assigner_stale_read", "faust_assigner_stale_reads_s"),
        ("Faust_assigner_rack", "faust_assigner_rack"),
        ("FAUST_ASSIGNER_LEGER", "faust_assigner_ledger"),
    ],
)
def test_a_misspelled_keyword_is_refused_with_the_nearest_name(name: str, nearest: str) -> None:
    """Faust drops keywords that it does not know."""
    check_keywords([*KEYWORDS, *(k.upper() for k in KEYWORDS), "broker", "datadir"])
    with pytest.raises(ConfigError, match=rf"{name}: did you mean {nearest}\?"):
        check_keywords([name])


@pytest.mark.parametrize("name", ["faust_assigner_cache", "faust_assigner_bind"])
def test_a_setting_that_is_no_keyword_is_refused_as_one(name: str) -> None:
    """Faust would ignore the keyword, as the setting is read only from the environment."""
    with pytest.raises(ConfigError, match=name):
        check_keywords([name])


def test_a_property_of_kafka_without_a_name_is_no_setting() -> None:
    """The property's name is missing, as after a template with an empty value."""
    with pytest.raises(ConfigError, match="FAUST_ASSIGNER_KAFKA_:"):
        check_environment(["FAUST_ASSIGNER_KAFKA_"])

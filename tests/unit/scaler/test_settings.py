"""The metadata of a ScaledObject: its keys, their bounds, and untrusted values."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from docs.generate.settings import name_cell, renewed
from faust_assigner.errors import ConfigError
from faust_assigner.scaler.settings import KEYS, SETTINGS, Settings, read_metadata, read_settings

PAGE = Path(__file__).resolve().parents[3] / "docs/how-to/autoscaling.md"


def test_each_setting_has_a_key() -> None:
    """Each key sets another setting; the keys are in Kubernetes' style."""
    assert sorted(KEYS.values()) == sorted(field.name for field in dataclasses.fields(Settings))
    assert {"min", "max", "targetLag", "targetLagSeconds", "growAt", "downSeconds"} < KEYS.keys()


def test_the_page_on_autoscaling_shows_the_settings() -> None:
    """The table on the page equals the generated table."""
    text = PAGE.read_text()
    shown = renewed(text, SETTINGS.values(), name_cell)
    assert shown == text
    assert all(f"| `{key}` |" in text for key in KEYS)


def test_keys_are_read() -> None:
    """KEDA's own client reads further keys."""
    metadata = {
        "group": "shop",
        "scalerAddress": "scaler:6071",
        "enableTLS": "true",
        "min": "2",
        "max": " 12 ",
        "workerRate": "1e3",
        "downSeconds": "600",
    }
    found = read_metadata(metadata, "shop", {"max": "6", "targetLag": "500"})
    assert found == Settings(least=2, most=12, worker_rate=1000.0, down_s=600.0, target_lag=500.0)


@pytest.mark.parametrize(
    "key",
    [
        "scalerAddress",
        "enableTLS",
        "unsafeSsl",
        "caCert",
        "tlsCertFile",
        "tlsClientCert",
        "tlsClientKey",
    ],
)
def test_each_key_of_kedas_client_is_ignored(key: str) -> None:
    """KEDA sends the whole metadata of the trigger; a refusal would stop the autoscaling."""
    assert read_metadata({"group": "shop", key: "x"}, "shop", {}) == Settings()
    with pytest.raises(ConfigError, match="unknown key"):
        read_metadata({"group": "shop", key.upper(): "x"}, "shop", {})


@pytest.mark.parametrize(
    ("own", "found"),
    [
        ({}, (500.0, 60.0)),
        ({"max": "6"}, (500.0, 60.0)),
        ({"targetLag": "7"}, (7.0, 30.0)),
        ({"targetLagSeconds": "10"}, (None, 10.0)),
        ({"targetLag": "7", "targetLagSeconds": "10"}, (7.0, 10.0)),
    ],
)
def test_a_target_of_the_backlog_replaces_the_default_under_either_key(
    own: dict[str, str], found: tuple[float | None, float]
) -> None:
    """The scaler prefers a target in records, also if that is only a default."""
    defaults = {"targetLag": "500", "targetLagSeconds": "60", "min": "3"}
    settings = read_metadata({"group": "shop", **own}, "shop", defaults)
    assert (settings.target_lag, settings.target_lag_s) == found
    assert settings.least == 3


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("min", "-1"),
        ("min", "1.5"),
        ("min", "٣"),
        ("min", ""),
        ("max", "0"),
        ("max", "9" * 5000),
        ("workerRate", "nan"),
        ("workerRate", "inf"),
        ("workerRate", "0"),
        ("downSeconds", "-1"),
        ("downSeconds", "1e9"),
        ("catchUpSeconds", "0"),
        ("growAt", "1.1"),
        ("shrinkAt", "0"),
        ("maximum", "3"),
        ("x" * 10_000, "3"),
    ],
)
def test_a_bad_key_or_value_is_refused_by_its_name(key: str, text: str) -> None:
    """The message has a bounded length."""
    with pytest.raises(ConfigError) as refused:
        read_metadata({"group": "shop", key: text}, "shop", {})
    assert key[:40] in str(refused.value)
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("value", ["0", "1", "999999"])
def test_bounds_themselves_are_fine(value: str) -> None:
    """Both the smallest and the largest values are valid."""
    assert read_settings({"min": value}).least == int(value)


@pytest.mark.parametrize("group", [{}, {"group": ""}, {"group": "other"}])
def test_a_scaled_object_of_another_group_is_refused(group: dict[str, str]) -> None:
    """The object would scale its workers by the load of our group."""
    with pytest.raises(ConfigError, match=r"^group: .*shop"):
        read_metadata(group, "shop", {})


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({"min": "4", "max": "3"}, "max"),
        ({"growAt": "0.5", "shrinkAt": "0.5"}, "shrinkAt"),
        ({"growAt": "0.6"}, "shrinkAt"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(given: dict[str, str], key: str) -> None:
    """Equal thresholds would grow and shrink in turn."""
    with pytest.raises(ConfigError, match=f"^{key}: "):
        read_settings(given)
    read_settings({"min": "3", "max": "3"})


@pytest.mark.parametrize("most", ["1", "2"])
def test_min_0_goes_with_any_max(most: str) -> None:
    """A sleeping group still has a largest size."""
    assert read_settings({"min": "0", "max": most}).most == int(most)

"""The scaler's settings from a ScaledObject's trigger, or from ``--set``. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from faust_assigner.errors import ConfigError
from faust_assigner.settings.schema import Kind, declared, declared_in, number


def _whole(least: int) -> Kind[int]:
    def parse(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and len(text) <= 6 and int(text) >= least):
            raise ValueError(text)
        return int(text)

    return Kind(f"a whole number, {least} or more", parse)


_RECORDS: Final = number("a number of records, 1 or more", least=1, most=1e12)
_RATE: Final = number("a number of records a second, 0.001 or more", least=0.001, most=1e12)
_A_SECOND: Final = number("a number of seconds, from 1 to 86400", least=1, most=86_400)
_SECONDS: Final = number("a number of seconds, from 0 to 86400", least=0, most=86_400)
_PARTS: Final = number("a number of parts of 1, from 0.05 to 1", least=0.05, most=1)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings by which the scaler sizes one group; times are in seconds.

    The size grows if the load has exceeded ``grow_at`` of the workers' rate for ``up_s``. The
    size shrinks if a smaller size would have sufficed for ``down_s``: the load stayed below
    ``shrink_at`` of the smaller size's rate.
    """

    least: int = declared(
        _whole(0), 1, "the minimum number of workers; with 0 an idle group has no worker"
    )
    most: int | None = declared(
        _whole(1), None, "the maximum number of workers", shown="the number of tasks"
    )
    target_lag: float | None = declared(
        _RECORDS,
        None,
        "the target of the backlog, in records for each worker, in place of `targetLagSeconds`",
        shown="none",
    )
    target_lag_s: float = declared(
        _A_SECOND, 30.0, "the target of the backlog, in seconds of arrivals"
    )
    catch_up_s: float = declared(
        _A_SECOND, 300.0, "the time for processing a backlog above the target"
    )
    worker_rate: float | None = declared(
        _RATE, None, "the maximum rate of a worker, in records per second", shown="measured"
    )
    spare: int = declared(
        _whole(0),
        0,
        "the number of workers whose loss the group must withstand without falling behind",
    )
    grow_at: float = declared(
        _PARTS, 0.9, "the size grows if the load exceeds this part of the workers' total rate"
    )
    shrink_at: float = declared(
        _PARTS,
        0.7,
        "the size shrinks if the load is below this part of the smaller size's total rate",
    )
    up_s: float = declared(_SECONDS, 30.0, "the duration of a load before the size grows")
    down_s: float = declared(_SECONDS, 900.0, "the duration of a load before the size shrinks")
    settle_s: float = declared(
        _SECONDS,
        300.0,
        "the time after which the scaler gives up a change without effect on the workers",
    )
    hold_s: float = declared(
        _SECONDS,
        120.0,
        "the time in which the scaler repeats its last answer while the brokers do not answer",
    )

    def __post_init__(self) -> None:
        if self.most is not None and self.most < max(self.least, 1):
            raise ConfigError(f"max: {self.most} is below min, which is {self.least}")
        if self.shrink_at >= self.grow_at:
            raise ConfigError(
                f"shrinkAt: {self.shrink_at:g} must be below growAt, which is {self.grow_at:g}"
            )


def _key(field: str) -> str:
    """Return the key of a field in the metadata: ``target_lag_s`` -> ``targetLagSeconds``."""
    words = re.sub("_s$", "_seconds", {"least": "min", "most": "max"}.get(field, field))
    return re.sub("_(.)", lambda found: found[1].upper(), words)


#: Field -> setting, under its key in the metadata.
SETTINGS: Final = declared_in(Settings, _key)
KEYS: Final = {setting.name: field for field, setting in SETTINGS.items()}
#: Keys of the trigger that configure KEDA's gRPC client. KEDA sends them along; the scaler ignores them.
#: KEDA's pages list ``tlsCertFile`` as deprecated.
KEDA_KEYS: Final = frozenset(
    {
        "scalerAddress",
        "enableTLS",
        "unsafeSsl",
        "caCert",
        "tlsCertFile",
        "tlsClientCert",
        "tlsClientKey",
    }
)
GROUP: Final = "group"
#: The keys of the target of the backlog: in records, and in seconds of arrivals.
_TARGETS: Final = frozenset({_key("target_lag"), _key("target_lag_s")})
#: The length to which keys and values are cut in errors.
_SHOWN = 40


def read_settings(given: Mapping[str, str]) -> Settings:
    """Parse settings. Raises ConfigError for an unknown key or a bad value; the error names the key."""
    found: dict[str, Any] = {}
    for key, text in given.items():
        if key not in KEYS:
            raise ConfigError(f"{_shown(key)}: unknown key; the keys are {', '.join(KEYS)}")
        kind = SETTINGS[KEYS[key]].kind
        try:
            found[KEYS[key]] = kind.parse(text.strip())
        except ValueError:
            raise ConfigError(f"{key}: must be {kind.words}, got {_shown(text)}") from None
    return Settings(**found)


def read_metadata(
    metadata: Mapping[str, str], group_id: str, defaults: Mapping[str, str]
) -> Settings:
    """Parse the settings of a ScaledObject of ``group_id``; ``defaults`` apply to missing keys.

    Raises ConfigError as :func:`read_settings`, and for a ScaledObject of a different group.
    """
    asked = metadata.get(GROUP)
    if not asked:
        raise ConfigError(f"{GROUP}: missing; this scaler serves the group {group_id}")
    if asked != group_id:
        raise ConfigError(f"{GROUP}: this scaler serves the group {group_id}, got {_shown(asked)}")
    own = {key: text for key, text in metadata.items() if key not in KEDA_KEYS | {GROUP}}
    # The backlog has one target, under two keys: a ScaledObject's target replaces a default under either key.
    replaced = _TARGETS if _TARGETS & own.keys() else frozenset()
    kept = {key: text for key, text in defaults.items() if key not in replaced}
    return read_settings({**kept, **own})


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")

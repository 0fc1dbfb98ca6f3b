"""The scaler's settings from a ScaledObject's trigger, or from ``--set``. No I/O."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from faust_assigner.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The scaling of a group. Sizes are numbers of workers, times are seconds, rates records per second.

    ``least`` and ``most`` bound the size; with ``most`` None the bound is the number of tasks. The group may
    be behind by ``target_lag`` records per worker; if None, by the arrivals of ``target_lag_s``. A larger
    backlog must be processed within ``catch_up_s``. ``worker_rate`` is a worker's maximum rate, None to
    measure it. After the loss of ``spare`` workers, the remaining workers still process all arrivals. The
    size grows if the load has exceeded ``grow_at`` of the workers' rate for ``up_s``; it shrinks if the load
    has been below ``shrink_at`` of the smaller size's rate for ``down_s``. A change that the workers have not
    followed within ``settle_s`` is given up. The last answer is repeated for ``hold_s`` while the group does
    not answer.
    """

    least: int = 1
    most: int | None = None
    target_lag: float | None = None
    target_lag_s: float = 30.0
    catch_up_s: float = 300.0
    worker_rate: float | None = None
    spare: int = 0
    grow_at: float = 0.9
    shrink_at: float = 0.7
    up_s: float = 30.0
    down_s: float = 900.0
    settle_s: float = 300.0
    hold_s: float = 120.0

    def __post_init__(self) -> None:
        if self.most is not None and self.most < max(self.least, 1):
            raise ConfigError(f"max: {self.most} is below min, which is {self.least}")
        if self.shrink_at >= self.grow_at:
            raise ConfigError(
                f"shrinkAt: {self.shrink_at:g} must be below growAt, which is {self.grow_at:g}"
            )


class _Refused(ValueError):
    """The requirement that a value violates."""


def _whole(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and len(text) <= 6 and int(text) >= least):
            raise _Refused(f"a whole number, {least} or more")
        return int(text)

    return read


def _number(least: float, most: float = 1e12, *, unit: str) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            found = float(text)
        except ValueError:
            found = math.nan
        if not least <= found <= most:
            bound = f"from {least:g} to {most:g}" if most < 1e12 else f"{least:g} or more"
            raise _Refused(f"a number of {unit}, {bound}")
        return found

    return read


#: Key of the metadata -> the field of the settings, and the parser of its text.
KEYS: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "min": ("least", _whole(0)),
    "max": ("most", _whole(1)),
    "targetLag": ("target_lag", _number(1, unit="records")),
    "targetLagSeconds": ("target_lag_s", _number(1, 86_400, unit="seconds")),
    "catchUpSeconds": ("catch_up_s", _number(1, 86_400, unit="seconds")),
    "workerRate": ("worker_rate", _number(0.001, unit="records a second")),
    "spare": ("spare", _whole(0)),
    "growAt": ("grow_at", _number(0.05, 1, unit="parts of 1")),
    "shrinkAt": ("shrink_at", _number(0.05, 1, unit="parts of 1")),
    "upSeconds": ("up_s", _number(0, 86_400, unit="seconds")),
    "downSeconds": ("down_s", _number(0, 86_400, unit="seconds")),
    "settleSeconds": ("settle_s", _number(0, 86_400, unit="seconds")),
    "holdSeconds": ("hold_s", _number(0, 86_400, unit="seconds")),
}
#: Keys for KEDA's own client, which KEDA sends along.
KEDA_KEYS: Final = frozenset(
    {"scalerAddress", "enableTLS", "unsafeSsl", "caCert", "tlsClientCert", "tlsClientKey"}
)
GROUP: Final = "group"
#: The length to which keys and values are cut in errors.
_SHOWN = 40


def read_settings(given: Mapping[str, str]) -> Settings:
    """Parse settings. Raises ConfigError, which names the unknown or bad key."""
    found: dict[str, Any] = {}
    for key, text in given.items():
        if key not in KEYS:
            raise ConfigError(f"{_shown(key)}: unknown key; the keys are {', '.join(KEYS)}")
        name, read = KEYS[key]
        try:
            found[name] = read(text.strip())
        except _Refused as error:
            raise ConfigError(f"{key}: must be {error}, got {_shown(text)}") from None
    return Settings(**found)


def read_metadata(
    metadata: Mapping[str, str], group_id: str, defaults: Mapping[str, str]
) -> Settings:
    """Parse the settings of a ScaledObject of ``group_id``; ``defaults`` apply to missing keys.

    Raises ConfigError, which names the key, also for a ScaledObject of a different group.
    """
    asked = metadata.get(GROUP)
    if not asked:
        raise ConfigError(f"{GROUP}: missing; this scaler serves the group {group_id}")
    if asked != group_id:
        raise ConfigError(f"{GROUP}: this scaler serves the group {group_id}, got {_shown(asked)}")
    own = {key: text for key, text in metadata.items() if key not in KEDA_KEYS | {GROUP}}
    return read_settings({**defaults, **own})


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")

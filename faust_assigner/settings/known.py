"""Refuses unknown names that have the prefix of our settings, because they are misspelled."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Final

from faust_assigner.errors import ConfigError
from faust_assigner.settings.service import AT, OPTIONS, TOKEN
from faust_assigner.settings.table import SETTINGS

PREFIX: Final = "FAUST_ASSIGNER_"
#: The variables of workers, of the service and of the commands, which may share an environment.
IN_THE_ENVIRONMENT: Final = frozenset(setting.name for setting in (*SETTINGS, *OPTIONS, AT, TOKEN))
KEYWORDS: Final = frozenset(setting.keyword for setting in SETTINGS if setting.is_keyword)
#: The prefix before any property of Kafka's clients (``FAUST_ASSIGNER_KAFKA_SASL_PASSWORD``).
_KAFKA: Final = PREFIX + "KAFKA_"
#: Variables that Kubernetes sets in every pod if a Service's name begins with ``faust-assigner``.
_KUBERNETES: Final = re.compile(
    r"FAUST_ASSIGNER_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|"
    r"PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)


def check_environment(names: Iterable[str], *, env_prefix: str | None = None) -> None:
    """Raise ConfigError with each unknown variable that has our prefix, and the nearest setting.

    ``env_prefix`` is Faust's setting: with ``SHOP``, ``SHOP_FAUST_ASSIGNER_RACK`` is a setting,
    too.
    """
    before = f"{env_prefix.rstrip('_')}_" if env_prefix else ""
    wrong = []
    for name in sorted(names):
        for prefix in dict.fromkeys((before, "")):
            if name.upper().startswith((prefix + PREFIX).upper()):
                if not (name.startswith(prefix) and _is_variable(name.removeprefix(prefix))):
                    wrong.append(
                        f"{name}: {_nearest(name[len(prefix) :], IN_THE_ENVIRONMENT, prefix)}"
                    )
                break
    _refuse_unknown("Unknown settings in the environment", wrong)


def check_keywords(names: Iterable[str]) -> None:
    """Raise ConfigError with each unknown keyword of ``faust.App`` that has our prefix."""
    taken = KEYWORDS | {keyword.upper() for keyword in KEYWORDS}
    wrong = [
        f"{name}: {_nearest(name, KEYWORDS)}"
        for name in sorted(names)
        if name.upper().startswith(PREFIX) and name not in taken
    ]
    _refuse_unknown("Unknown keywords of faust.App", wrong)


def _is_variable(name: str) -> bool:
    return (
        name in IN_THE_ENVIRONMENT
        or (name.startswith(_KAFKA) and name != _KAFKA)
        or is_of_kubernetes(name)
    )


def is_of_kubernetes(name: str) -> bool:
    """Return whether Kubernetes sets this variable for a Service named ``faust-assigner...``."""
    return _KUBERNETES.fullmatch(name) is not None


def _nearest(name: str, known: Iterable[str], before: str = "") -> str:
    """Return a sentence with the most similar name in ``known``, compared without the prefix."""
    short = {other[len(PREFIX) :].upper(): other for other in sorted(known)}
    found = difflib.get_close_matches(name[len(PREFIX) :].upper(), short, n=1)
    return f"did you mean {before}{short[found[0]]}?" if found else "no setting has a similar name"


def _refuse_unknown(what: str, wrong: list[str]) -> None:
    if wrong:
        raise ConfigError(f"{what}: {'; '.join(wrong)} (docs/reference/settings.md lists them all)")

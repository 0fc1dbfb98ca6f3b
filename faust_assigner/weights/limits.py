"""The limits of weights: costs are divided by their median, and clamped to a lowest and a highest weight."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from faust_assigner.errors import ConfigError
from faust_assigner.model import Floats
from faust_assigner.settings.schema import SPAN
from faust_assigner.settings.table import WEIGHTS_CLAMP

NEUTRAL = 1.0


class Limits(NamedTuple):
    """The lowest and highest weight, as multiples of the median; one bad sample then cannot fill a worker.

    A steep load needs wider limits: under a Zipf law the heaviest of 100 partitions is 50 times the median.
    """

    lowest: float = WEIGHTS_CLAMP.default[0]
    highest: float = WEIGHTS_CLAMP.default[1]

    @classmethod
    def parse(cls, text: str) -> Limits:
        """Parse ``0.25:4`` as limits; raises ConfigError unless 0 < lowest <= 1 <= highest."""
        try:
            return cls(*SPAN.parse(text))
        except ValueError:
            raise ConfigError(f"limits of weights must be {SPAN.words}, got {text!r}") from None


DEFAULT_LIMITS = Limits()


def clamp_to_median(costs: npt.ArrayLike, limits: Limits = DEFAULT_LIMITS) -> Floats:
    """Return float64[n]: each cost divided by the median of the known positive costs, within ``limits``.

    An unknown cost (NaN) weighs 1.0. Without a positive cost every entry weighs 1.0.

    >>> clamp_to_median([10, 20, 30, 1000, 0, float("nan")]).tolist()
    [0.4, 0.8, 1.2, 4.0, 0.25, 1.0]
    """
    values = np.asarray(costs, float)
    known = np.isfinite(values)
    positive = values[known & (values > 0)]
    if not positive.size:
        return np.full(len(values), NEUTRAL)
    with np.errstate(over="ignore"):  # infinity is clamped like any other cost
        relative = np.where(known, values, np.nan) / np.median(positive)
    clamped: Floats = np.where(known, np.clip(relative, *limits), NEUTRAL)
    return clamped

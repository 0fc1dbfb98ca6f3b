"""Weights of partitions: the document that carries them, and a trial of their effect."""

from faust_assigner.weights.document import (
    WeightRow,
    WeightsDocument,
    WeightSet,
    WeightsRefused,
    decode,
    encode,
)
from faust_assigner.weights.limits import DEFAULT_LIMITS, Limits, clamp_to_median

__all__ = [
    "DEFAULT_LIMITS",
    "Limits",
    "WeightRow",
    "WeightSet",
    "WeightsDocument",
    "WeightsRefused",
    "clamp_to_median",
    "decode",
    "encode",
]

"""Weights of partitions: the document that carries them, and a trial of their effect."""

from faust_assigner.weights.document import (
    DEFAULT_LIMITS,
    Limits,
    WeightRow,
    WeightsDocument,
    WeightSet,
    WeightsRefused,
    clamp_to_median,
    decode,
    encode,
)

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

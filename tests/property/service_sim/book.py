"""The error that a broken promise raises."""

from __future__ import annotations

from tests.property.lives import Violation


def must(holds: object, promise: str, *facts: object) -> None:
    """Raise Violation if ``holds`` is false."""
    if not holds:
        raise Violation(f"{promise}: {' '.join(map(repr, facts))}")

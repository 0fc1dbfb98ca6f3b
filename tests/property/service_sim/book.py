"""What a broken promise is."""

from __future__ import annotations

from tests.property.lives import Violation


def must(holds: object, promise: str, *facts: object) -> None:
    """Raise Violation unless it holds."""
    if not holds:
        raise Violation(f"{promise}: {' '.join(map(repr, facts))}")

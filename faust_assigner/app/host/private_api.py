"""One row of the tables of host names."""

from __future__ import annotations

from typing import NamedTuple


class PrivateApi(NamedTuple):
    """One name of the host.

    ``owner`` is ``module`` or ``module:Class``. ``shape`` is a signature (names, kinds, ``=`` for a default;
    ``async`` before it for a coroutine), ``property``, ``class attribute``, or ``set in METHOD``. ``parts``
    are the installers that need it, ``stock`` is none of them.
    """

    owner: str
    name: str
    shape: str
    parts: tuple[str, ...]
    why: str
    test: str


def rows_of(owner: str, *rows: tuple[str, str, str, str, str]) -> tuple[PrivateApi, ...]:
    """Rows of one owner: (name, shape, parts with spaces between them, why, test)."""
    return tuple(
        PrivateApi(owner, name, shape, tuple(parts.split()), why, test)
        for name, shape, parts, why, test in rows
    )

"""One row of the tables of host names."""

from __future__ import annotations

from typing import NamedTuple


class PrivateApi(NamedTuple):
    """One name of the host.

    ``owner`` is ``module`` or ``module:Class``. ``shape`` is a signature, ``property``, ``class
    attribute``, or ``set in METHOD``. A signature has names, kinds and ``=`` for a default; a
    coroutine's begins with ``async``. ``parts`` are the installers that need the name; ``stock`` is
    no installer.
    """

    owner: str
    name: str
    shape: str
    parts: tuple[str, ...]
    why: str
    test: str


def rows_of(owner: str, *rows: tuple[str, str, str, str, str]) -> tuple[PrivateApi, ...]:
    """Return the rows of one owner: (name, shape, parts separated by spaces, why, test)."""
    return tuple(
        PrivateApi(owner, name, shape, tuple(parts.split()), why, test)
        for name, shape, parts, why, test in rows
    )

"""Planted bugs: each names the tests that must see it. tests/README.md tells how to add one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """One bug to plant.

    ``old`` stands exactly once in ``file`` (a path from the root of the repository); ``new`` takes its place.
    Each of ``red``, pytest node ids, must then fail; an id without ``[...]`` of a parametrised test fails
    when one of its cases does. ``story`` says in one line what the bug does.
    """

    story: str
    file: str
    old: str
    new: str
    red: tuple[str, ...]


class Stale(ValueError):
    """The text to replace is not in its file exactly once."""


def planted(source: str, mutant: Mutant) -> str:
    """``source`` with the bug in it. Raises Stale."""
    if (found := source.count(mutant.old)) != 1 or mutant.old == mutant.new:
        raise Stale(f"{mutant.file}: found {found} times: {mutant.old!r}")
    return source.replace(mutant.old, mutant.new)

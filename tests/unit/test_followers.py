"""Changelogs whose subscribers differ from their source's: who gets what follows nobody."""

from __future__ import annotations

import numpy as np

from faust_assigner.followers import _even


def even(n: int, *, followed: list[int], held: list[int], warm: list[int]) -> list[int]:
    """How many of ``n`` each of three members gets."""
    who = np.arange(3)
    return _even(who, n, np.array(followed), np.array(held), np.array(warm)).tolist()


def test_the_extra_goes_where_the_fewest_followed() -> None:
    """First the total, then what sticks, then what is warm, then the name."""
    assert even(4, followed=[2, 2, 1], held=[9, 9, 0], warm=[9, 9, 0]) == [1, 1, 2]
    assert even(4, followed=[1, 1, 1], held=[1, 2, 0], warm=[9, 0, 0]) == [1, 2, 1]
    assert even(4, followed=[1, 1, 1], held=[0, 0, 0], warm=[0, 0, 3]) == [1, 1, 2]
    assert even(4, followed=[1, 1, 1], held=[0, 0, 0], warm=[0, 0, 0]) == [2, 1, 1]

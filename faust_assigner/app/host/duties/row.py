"""One row of the tables of duties: a host's method that ours replaces, and its duties' places."""

from __future__ import annotations

from typing import NamedTuple

#: As a place: our method in this row.
HERE = "here"
#: As a place: the host's own method, which ours calls on the paths where the duty is due.
ORIGINAL = "original"


class Duty(NamedTuple):
    """A visible effect of the host's method.

    ``what`` uses the words of ``tests/support/host/source.py``, which reads the host's source. A
    duty that the syntax tree does not show begins with ``also``. ``where`` names our functions as
    ``module:Class.name``, separated by spaces. If ``where`` is empty, no function of ours fulfils
    the duty, and ``why`` gives the reason.
    """

    what: str
    where: str
    why: str = ""


class Taken(NamedTuple):
    """A method of the host, ``module:Class.name``, and our function that replaces it on some path.

    ``why`` names these paths or the difference. ``duties`` are the duties of the host's method.
    """

    host: str
    ours: str
    why: str
    duties: tuple[Duty, ...]


class Put(NamedTuple):
    """An attribute of a host's object that our code replaces at ``site``.

    ``made`` is our function or class. ``holds`` is the parameter or expression by which ``made``
    calls the host's original; it is empty without such a call. ``why`` is necessary if there is no
    call, or if some path has none.
    """

    site: str
    host: str
    made: str
    holds: str
    why: str = ""


def taken(host: str, ours: str, why: str, *duties: tuple[str, ...]) -> Taken:
    """Return a row; each duty is (what, where) or (what, "", why)."""
    return Taken(host, ours, why, tuple(Duty(*duty) for duty in duties))


def alike(host: str, ours: str, names: str, why: str) -> tuple[Taken, ...]:
    """Return rows for methods without duties, all with the same reason."""
    return tuple(Taken(f"{host}.{name}", f"{ours}.{name}", why, ()) for name in names.split())

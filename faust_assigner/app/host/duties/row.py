"""One row of the tables of duties: a method of the host that ours replaces, and where its duties are."""

from __future__ import annotations

from typing import NamedTuple

#: As a place: the method of ours that the row is of.
HERE = "here"
#: As a place: the host's own method, which ours calls on the paths where the duty is due.
ORIGINAL = "original"


class Duty(NamedTuple):
    """What the host's method does for others to see.

    ``what`` is in the words of ``tests/support/host/source.py``, which reads the host's source; a duty that
    no syntax tree shows begins with ``also``. ``where`` names our functions as ``module:Class.name``, with
    spaces between them. It is empty where nothing of ours does it: then ``why`` gives the reason.
    """

    what: str
    where: str
    why: str = ""


class Taken(NamedTuple):
    """A method of the host, ``module:Class.name``, and what of ours stands in its place on some path.

    ``why`` says on which paths, or what is different. ``duties`` are those of the host's method.
    """

    host: str
    ours: str
    why: str
    duties: tuple[Duty, ...]


class Put(NamedTuple):
    """An attribute of a host's object that is given something of ours; ``site`` is where.

    ``made`` is our function or class, ``holds`` the parameter or expression by which it calls the host's own.
    It is empty where ours does not call that; ``why`` is needed then, and where some path does not call it.
    """

    site: str
    host: str
    made: str
    holds: str
    why: str = ""


def taken(host: str, ours: str, why: str, *duties: tuple[str, ...]) -> Taken:
    """A row; each duty is (what, where) or (what, "", why)."""
    return Taken(host, ours, why, tuple(Duty(*duty) for duty in duties))


def alike(host: str, ours: str, names: str, why: str) -> tuple[Taken, ...]:
    """Rows of methods that have no duty for others to see, and one reason."""
    return tuple(Taken(f"{host}.{name}", f"{ours}.{name}", why, ()) for name in names.split())

"""Every method of Faust, mode and aiokafka that ours override, replace or wrap, and its duties.

The rows are in ``duties.toml``; a test compares them with our classes and with the host's source.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any, Final, NamedTuple

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

    ``why`` names these paths or the difference. ``duties`` are the duties of the host's method. In
    the file, ``names`` lists methods that are alike; ``host`` and ``ours`` are then their classes.
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


def _taken(row: Mapping[str, Any]) -> Iterator[Taken]:
    duties = tuple(Duty(*duty) for duty in row.get("duties", ()))
    for name in row["names"].split() if "names" in row else [""]:
        dotted = f".{name}" if name else ""
        yield Taken(f"{row['host']}{dotted}", f"{row['ours']}{dotted}", row.get("why", ""), duties)


_FILE = files("faust_assigner.app.host.duties").joinpath("duties.toml")
_TABLES = tomllib.loads(_FILE.read_text("utf-8"))
TAKEN: Final = tuple(taken for row in _TABLES["taken"] for taken in _taken(row))
PUT: Final = tuple(Put(site, *row) for site, row in _TABLES["put"].items())
#: Our class -> names of its methods, separated by spaces, that call the host's method on every path.
CALLS: Final[Mapping[str, str]] = _TABLES["calls"]

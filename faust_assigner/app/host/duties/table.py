"""The methods of the host that our methods override, replace or wrap, and their duties.

The host is Faust, mode and aiokafka. A duty is a visible effect of a method, such as a signal or a
sensor call. The rows are in
``duties.toml``; a test compares them with our classes and with the host's source.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any, Final, NamedTuple

#: This value of ``Duty.where`` means our method in the same row.
HERE = "here"
#: This value of ``Duty.where`` means the host's own method, which our method calls where the duty
#: is due.
ORIGINAL = "original"


class Duty(NamedTuple):
    """A visible effect of the host's method.

    ``what`` describes the duty in the form of ``tests/support/host/source.py``, which reads the
    host's source. A duty that is not visible in the syntax tree begins with ``also``. ``where``
    lists the functions of ours that fulfil the duty, as ``module:Class.name``, separated by spaces.
    If ``where`` is empty, no function of ours fulfils the duty, and ``why`` gives the reason.
    """

    what: str
    where: str
    why: str = ""


class ReplacedMethod(NamedTuple):
    """A method of the host, ``module:Class.name``, and our function that replaces it on some path.

    ``why`` describes the cases in which our function replaces the method, or the difference between the two.
    ``duties`` are the duties of the host's method.
    A row of the file may list several method names in ``names``; ``host`` and ``ours`` are then
    classes.
    """

    host: str
    ours: str
    why: str
    duties: tuple[Duty, ...]


class ReplacedAttribute(NamedTuple):
    """An attribute of an object of Faust, mode or aiokafka that our code replaces.

    ``site`` is the place in our code, ``host`` the attribute, and ``made`` our function or class.
    ``holds`` is the parameter or expression by which ``made`` calls the host's original; it is
    empty without such a call. If some path does not call the original, ``why`` gives the reason.
    """

    site: str
    host: str
    made: str
    holds: str
    why: str = ""


def _replaced_methods(row: Mapping[str, Any]) -> Iterator[ReplacedMethod]:
    duties = tuple(Duty(*duty) for duty in row.get("duties", ()))
    for name in row["names"].split() if "names" in row else [""]:
        dotted = f".{name}" if name else ""
        yield ReplacedMethod(
            f"{row['host']}{dotted}", f"{row['ours']}{dotted}", row.get("why", ""), duties
        )


_FILE = files("faust_assigner.app.host.duties").joinpath("duties.toml")
_TABLES = tomllib.loads(_FILE.read_text("utf-8"))
TAKEN: Final = tuple(taken for row in _TABLES["taken"] for taken in _replaced_methods(row))
PUT: Final = tuple(ReplacedAttribute(site, *row) for site, row in _TABLES["put"].items())
#: Our class -> names of its methods, separated by spaces, that call the host's method on every path.
CALLS: Final[Mapping[str, str]] = _TABLES["calls"]

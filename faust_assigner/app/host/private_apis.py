"""The private or undocumented names of Faust, mode and aiokafka (the host) that this package uses.

The names are rows of ``private_apis.toml``. docs/generate writes docs/reference/host.md from the
rows. ``check.py`` compares the host with the rows before any part of an app is installed.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib.resources import files
from typing import Final, NamedTuple

#: Distribution -> the first supported version, and the first version that is not supported, as in
#: setup.cfg.
VERSIONS: Final = {"faust-streaming": ("0.15.3", "0.16"), "aiokafka": ("0.14", "0.15")}


class PrivateApi(NamedTuple):
    """One name of the host.

    - ``owner``: the module or class of the name, as ``module`` or ``module:Class``.
    - ``shape``: a signature, ``property``, ``class attribute``, or ``set in METHOD``. A signature
      has the parameters' names and kinds, with ``=`` for a default; the signature of a coroutine
      begins with
      ``async``.
    - ``parts``: the parts of an app (see ``compose.py``) that need the name. The part ``stock`` is
      the comparison with Faust's own assignor.
    - ``why``: the reason for the use of the name.
    - ``test``: the test that fails if the meaning of the name changes.
    """

    owner: str
    name: str
    shape: str
    parts: tuple[str, ...]
    why: str
    test: str


def _rows() -> Iterator[PrivateApi]:
    text = files("faust_assigner.app.host").joinpath("private_apis.toml").read_text("utf-8")
    for owner, names in tomllib.loads(text).items():
        for name, (shape, parts, why, test) in names.items():
            yield PrivateApi(owner, name, shape, tuple(parts.split()), why, test)


#: All rows; the names of one module or class are adjacent.
PRIVATE_APIS: Final = tuple(_rows())

"""Each private or undocumented name of Faust, mode and aiokafka that the app's parts use.

The rows are in ``private_apis.toml``. ``page.py`` writes docs/reference/host.md from them.
``check.py`` checks the host against them before any part is installed.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib.resources import files
from typing import Final, NamedTuple

#: Distribution -> the first tested version, and the first untested version; as in setup.cfg.
VERSIONS: Final = {"faust-streaming": ("0.15.3", "0.16"), "aiokafka": ("0.14", "0.15")}


class PrivateApi(NamedTuple):
    """One name of the host.

    ``owner`` is ``module`` or ``module:Class``. ``shape`` is a signature, ``property``, ``class
    attribute``, or ``set in METHOD``. A signature has names, kinds and ``=`` for a default; a
    coroutine's begins with ``async``. ``parts`` are the installers that need the name, or ``stock``
    if only the comparison with Faust's own assignor needs the name. ``test`` is the test that fails
    if the meaning of the name changes.
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


#: Sorted by owner: the names of one module or class are adjacent.
PRIVATE_APIS: Final = tuple(_rows())

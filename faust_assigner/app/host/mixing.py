"""Classes for one app, of ours over those that its settings name."""

from __future__ import annotations

from typing import Any


def mixed(*mixins: type, into: type) -> type:
    """A class of its own for one app: ``mixins`` over ``into``, under the name of what it stands in for.

    Mode puts a service's class name into every log line, and people search for ``[^--Consumer]``. It keeps
    a class's tasks by module and qualified name, so the latter says what was mixed.
    """
    theirs = next(
        base for base in into.__mro__ if not base.__module__.startswith("faust_assigner.")
    )
    qualified = f"{into.__qualname__}[{', '.join(mixin.__name__ for mixin in mixins)}]"
    return type(
        theirs.__name__, (*mixins, into), {"__module__": into.__module__, "__qualname__": qualified}
    )


def own_recovery(theirs: Any, mixin: type, manager: Any) -> Any:
    """The recovery service of a table ``manager`` made anew, with ``mixin`` in what the app has."""
    theirs.beacon.detach(manager.beacon)
    return mixed(mixin, into=type(theirs))(
        manager.app, manager, beacon=manager.beacon, loop=manager.loop
    )

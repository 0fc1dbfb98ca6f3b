"""What each consumer should hold, as a digest, to be compared with what it says in its heartbeats.

A consumer holds what is its own in the store, but for what it was asked to release: its answer may be on
its way.
"""

from __future__ import annotations

from collections.abc import Sequence

from faust_assigner.service.digest import Held
from faust_assigner.service.records import Assigned
from faust_assigner.service.view import Change, View, leaving


class Holdings:
    """Digests by process, kept with each change of the view."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str], Held] = {}

    def heard(self, view: View, changes: Sequence[Change]) -> None:
        """Take changes that the view has already."""
        if any(change.kind == "bases" for change in changes):
            self._begin_anew(view)  # every epoch is another one
            return
        for change in changes:
            if change.kind == "assignments":
                for entry, more in ((change.before, False), (change.after, True)):
                    if entry is not None:
                        self._count(view.dated(entry.value), more=more)

    def _count(self, assigned: Assigned, *, more: bool) -> None:
        process = assigned.owner, assigned.incarnation
        before = self._held.get(process, Held())
        change = before.plus if more else before.minus
        after = change(*assigned.at, assigned.epoch)
        if after.count:
            self._held[process] = after
        else:
            self._held.pop(process, None)

    def _begin_anew(self, view: View) -> None:
        self._held.clear()
        for entry in view.assignments.values():
            self._count(view.dated(entry.value), more=True)

    def of(self, view: View, name: str) -> Held:
        """What the registered process of that name should hold. Cost: a pass over its hand-offs."""
        mine = view.incarnation(name)
        found = self._held.get((name, mine), Held())
        for at in leaving(view, name):
            owner = view.assignments.get(at)
            if owner is not None and (owner.value.owner, owner.value.incarnation) == (name, mine):
                found = found.minus(*at, view.dated(owner.value).epoch)
        return found

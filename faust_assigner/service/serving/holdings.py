"""What each consumer should hold, as a digest, to be compared with what it says in its heartbeats.

A consumer holds what is its own in the store, but for what it was asked to release: its answer may be on
its way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from faust_assigner.service.digest import Held, held
from faust_assigner.service.records import Assigned
from faust_assigner.service.view import Change, View, leaving


class Holdings:
    """Digests by process, of those that were asked for; kept with each change of the view."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str], Held] = {}

    def heard(self, view: View, changes: Sequence[Change]) -> None:
        """Take changes that the view has already."""
        if any(change.kind == "bases" for change in changes):
            self._held.clear()  # every epoch is another one
            return
        for change in changes:
            if change.kind == "assignments":
                for entry, more in ((change.before, False), (change.after, True)):
                    if entry is not None:
                        self._count(view.dated(entry.value), more=more)

    def _count(self, assigned: Assigned, *, more: bool) -> None:
        process = assigned.owner, assigned.incarnation
        before = self._held.get(process)
        if before is None:
            return  # counted when it is asked for
        change = before.plus if more else before.minus
        after = change(*assigned.at, assigned.epoch)
        if after.count:
            self._held[process] = after
        else:
            del self._held[process]

    def of(self, view: View, name: str) -> Held:
        """What the registered process of that name should hold. Cost: a pass over its hand-offs, and at the
        first time one over its assignments."""
        process = name, view.incarnation(name)
        found = self._held.get(process)
        if found is None:
            mine = list(self._owned(view, process))
            found = held((*one.at, one.epoch) for one in mine)
            if mine:
                self._held[process] = found
        for at in leaving(view, name):
            owner = view.assignments.get(at)
            if owner is not None and (owner.value.owner, owner.value.incarnation) == process:
                found = found.minus(*at, view.dated(owner.value).epoch)
        return found

    @staticmethod
    def _owned(view: View, process: tuple[str, str]) -> Iterator[Assigned]:
        for at in view.owned.get(process[0], ()):
            assigned = view.assignments[at].value
            if assigned.incarnation == process[1]:
                yield view.dated(assigned)

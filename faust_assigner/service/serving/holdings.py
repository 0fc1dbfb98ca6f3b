"""The digest of each consumer's expected partitions, to compare with the digest in its heartbeats.

A consumer is expected to hold the partitions that it owns in the store. Partitions that it must
release in strict mode are left out, because its PartitionReleased may be on the way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from faust_assigner.service.digest import Held, digest_of
from faust_assigner.service.questions import leaving
from faust_assigner.service.records import Assigned
from faust_assigner.service.view import Change, View


class ExpectedHoldings:
    """The digest of each process, computed at the first request and updated with each change."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str], Held] = {}

    def on_changes(self, view: View, changes: Sequence[Change]) -> None:
        """Update the digests for changes that are already in the view."""
        if any(change.kind == "bases" for change in changes):
            self._held.clear()  # all epochs have changed
            return
        for change in changes:
            if change.kind == "assignments":
                for entry, more in ((change.before, False), (change.after, True)):
                    if entry is not None:
                        self._count(view.dated(entry.value), more=more)

    def _count(self, assigned: Assigned, *, more: bool) -> None:
        process = assigned.process
        before = self._held.get(process)
        if before is None:
            return  # of() computes the digest when it is requested
        change = before.plus if more else before.minus
        after = change(*assigned.at, assigned.epoch)
        if after.count:
            self._held[process] = after
        else:
            del self._held[process]

    def of(self, view: View, name: str) -> Held:
        """Return the digest of the partitions that the registered process should hold.

        Cost: one pass over its hand-offs; at the first request also one over its assignments.
        """
        process = name, view.incarnation(name)
        found = self._held.get(process)
        if found is None:
            mine = list(self._owned(view, process))
            found = digest_of((*one.at, one.epoch) for one in mine)
            if mine:
                self._held[process] = found
        for at in leaving(view, name):
            owner = view.assignments.get(at)
            if owner is not None and owner.value.process == process:
                found = found.minus(*at, view.dated(owner.value).epoch)
        return found

    @staticmethod
    def _owned(view: View, process: tuple[str, str]) -> Iterator[Assigned]:
        for at in view.owned.get(process[0], ()):
            assigned = view.assignments[at].value
            if assigned.incarnation == process[1]:
                yield view.dated(assigned)

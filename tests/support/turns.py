"""xdist's scheduler of units of work, with a cost of each test that does not grow with their number.

A unit is a group (``tests/support/groups.py``), a file of unit tests, or any other test.

The units begin with the stories on real processes, which mostly wait, and end with the unit tests,
which compute. The fourth worker and later ones take the units from the end, so they compute while
the first three wait. They have a low priority, so they do not delay the stories.

xdist keeps the finished units of work and counts them all again after each test, and it searches
the list of all tests for the number of the next one. With 20,000 tests this takes more than a
millisecond of a processor for each test.
"""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

#: The number of workers that take the units from the beginning.
FROM_THE_BEGINNING = 3
#: How much the priority of the other workers is lower, as a number of ``nice``.
NICENESS = 5


def begins_at_the_end(worker: str) -> bool:
    """Return whether the worker of this name (``gw0`` and so on) takes the units from the end.

    A worker that replaces one that crashed has a new number, and takes them from the end too.
    """
    number = worker.removeprefix("gw")
    return number.isdecimal() and int(number) >= FROM_THE_BEGINNING


def niceness(worker: str, dist: str) -> int:
    """Return by how much this worker lowers its priority; other schedulers of xdist know no turns."""
    return NICENESS if dist == "loadgroup" and begins_at_the_end(worker) else 0


class Turns(LoadScopeScheduling):
    """Hands out the units of work in their order, and forgets each unit after its last test."""

    @cached_property
    def groups(self) -> dict[str, str]:
        """Test -> its group, as the workers wrote it after their collection."""
        first = min(Path(self.config.groups_folder).iterdir())  # type: ignore[attr-defined]
        found: dict[str, str] = json.loads(first.read_text())
        return found

    def _split_scope(self, nodeid: str) -> str:
        own = nodeid.partition("::")[0] if nodeid.startswith("tests/unit/") else nodeid
        return self.groups.get(nodeid, own)

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of each test; all workers collect the same tests."""
        return {nodeid: number for number, nodeid in enumerate(self.collection or ())}

    def mark_test_complete(
        self, node: WorkerController, item_index: int, duration: float = 0
    ) -> None:
        """Mark the test, forget its unit if no test of the unit is left, and give ``node`` more."""
        nodeid = self.registered_collections[node][item_index]
        scope = self._split_scope(nodeid)
        unit = self.assigned_work[node][scope]
        unit[nodeid] = True
        if all(unit.values()):
            del self.assigned_work[node][scope]
        self._reschedule(node)

    def mark_test_pending(self, item: str) -> None:  # type: ignore[override]
        """Queue a test once more, whose worker died; pytest-rerunfailures grants this."""
        self.workqueue.setdefault(self._split_scope(item), {})[item] = False
        for node in self.assigned_work:
            self._reschedule(node)

    def remove_node(self, node: WorkerController) -> str | None:
        """Queue what a dead worker has left, but not the test that it ran, and return this test.

        xdist queues this test too, so it would end each worker that replaces the last one.
        """
        work = self.assigned_work.pop(node)
        left = [(unit, test) for unit in work.values() for test, done in unit.items() if not done]
        if not left:
            return None
        unit, crashed = left[0]
        unit[crashed] = True
        self.workqueue.update({scope: one for scope, one in work.items() if not all(one.values())})
        for other in self.assigned_work:
            self._reschedule(other)
        return crashed

    def _reschedule(self, node: WorkerController) -> None:
        """Give ``node`` two tests or its end: a worker begins no test before it knows the next step."""
        super()._reschedule(node)
        while self.workqueue and not node.shutting_down and self._has_less_than_two(node):
            self._assign_work_unit(node)
        if not self.workqueue and not node.shutting_down and self._has_less_than_two(node):
            node.shutdown()

    def _has_less_than_two(self, node: WorkerController) -> bool:
        return self._pending_of(self.assigned_work[node]) < 2

    def _assign_work_unit(self, node: WorkerController) -> None:
        is_from_end = begins_at_the_end(node.gateway.id)
        scope, unit = self.workqueue.popitem(last=is_from_end)
        self.assigned_work[node][scope] = unit
        node.send_runtest_some([self.numbers[nodeid] for nodeid, done in unit.items() if not done])

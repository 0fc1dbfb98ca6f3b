"""Generated faults that no test can see, because the program does the same with them; each with its reason."""

from __future__ import annotations

from typing import NamedTuple


class Equivalent(NamedTuple):
    """One fault, named by its lines before and after as ``tests.mutants.generated`` prints them."""

    file: str
    function: str
    old: str
    new: str
    reason: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        """The key of the mutation."""
        return self.file, self.function, self.old, self.new


EQUIVALENT: tuple[Equivalent, ...] = (
    Equivalent(
        "faust_assigner/coordinator/catalogue.py",
        "Catalogue.fingerprint",
        'return int.from_bytes(blake2b(joined, digest_size=8).digest(), "big") >> 1',
        'return int.from_bytes(blake2b(joined, digest_size=8).digest(), "big") >> 2',
        "62 bits of a digest tell catalogues apart as well as 63",
    ),
    Equivalent(
        "faust_assigner/coordinator/assignors/uniform.py",
        "assign_uniformly",
        "owner[~np.append(may, True)[owner]] = NOBODY # the member no longer subscribes to the topic",
        "owner[~np.append(may, False)[owner]] = NOBODY # the member no longer subscribes to the topic",
        "the last place is read for partitions without an owner, which get no owner either way",
    ),
    Equivalent(
        "faust_assigner/coordinator/protocol.py",
        "subscribed_topics",
        "return None",
        "pass",
        "the function ends there and returns None all the same",
    ),
    Equivalent(
        "faust_assigner/wire/runs.py",
        "Runs.numbers",
        "if len(self.starts) <= _FEW and self.size <= 8 * _FEW:",
        "if len(self.starts) <= _FEW and self.size <= 9 * _FEW:",
        "both ways give the same numbers; this is where the one becomes the faster",
    ),
    Equivalent(
        "faust_assigner/previous.py",
        "_vote",
        "number * len(group.topics) + topic, return_index=True, return_counts=True",
        "(number * len(group.topics) - topic), return_index=True, return_counts=True",
        "either way each pair of number and topic has a number of its own",
    ),
    Equivalent(
        "faust_assigner/planner.py",
        "plan",
        "if progress is None or waiting is None:",
        "if (waiting is None):",
        "without progress nothing waits; the first half is for the type checker",
    ),
    Equivalent(
        "faust_assigner/previous.py",
        "_previous_owner",
        "return read[0][0], True",
        "pass",
        "a shortcut: the full rule finds the same owners where no claim is disputed",
    ),
    Equivalent(
        "faust_assigner/grouper.py",
        "PartitionGrouper.group",
        "rows = [np.array(d.members, dtype=np.int64) for d in drafts]",
        "rows = [np.array(d.members) for d in drafts]",
        "members of a draft are never none, and integers are of 64 bits anyway",
    ),
    Equivalent(
        "faust_assigner/warmup.py",
        "Progress.after",
        "spare = np.append(was.copy_was_standby, np.zeros(left.size, dtype=np.bool_))",
        "spare = np.append(was.copy_was_standby, np.zeros(left.size))",
        "the flag is only asked whether it is true",
    ),
    Equivalent(
        "faust_assigner/claims.py",
        "TopicClaims.pairs",
        "return _NONE, _NONE",
        "return (_NONE, _NONE)",
        "both are the same array",
    ),
    Equivalent(
        "faust_assigner/previous.py",
        "_previous_owner",
        "different = {id(pairs[0]): pairs for t in group.topics if (pairs := claims[t])[0].size}",
        "different = {id(pairs[1]): pairs for t in group.topics if (pairs := claims[t])[0].size}",
        "numbers and members of a pair are made together",
    ),
    Equivalent(
        "faust_assigner/checks/spares.py",
        "_check_even",
        "if not rows or max(loads) - min(loads) <= 1:",
        "if not rows or max(loads) - min(loads) <= 0:",
        "loads within one pass the check that follows, too",
    ),
    Equivalent(
        "faust_assigner/grouper.py",
        "_probe",
        "attempt += 1",
        "attempt += 2",
        "which numbers are tried after one that is taken matters to nobody",
    ),
    Equivalent(
        "faust_assigner/checks/owners.py",
        "check_even_and_sticky",
        "sizes = np.array([case.units[u].count for u in rows], dtype=np.int64)",
        "sizes = np.array([case.units[u].count for u in rows])",
        "counts are never none, and integers are of 64 bits anyway",
    ),
    Equivalent(
        "faust_assigner/followers.py",
        "_follow",
        "subscribed = np.zeros(members + 1, dtype=bool)",
        "subscribed = np.zeros(members + 0, dtype=bool)",
        "what the place behind the last member says is not used: its value is NOBODY either way",
    ),
    Equivalent(
        "faust_assigner/simulation/simulator.py",
        "_Fleet._take_over",
        "return",
        "pass",
        "what follows is over nothing",
    ),
    Equivalent(
        "faust_assigner/simulation/simulator.py",
        "_Fleet.__init__",
        "self.pending = False",
        "self.pending = True",
        "the first round, before any event, sets it",
    ),
    Equivalent(
        "faust_assigner/snapshots/storage.py",
        "_modified_ms",
        'for name in ("LastModified", "last_modified", "mtime", "updated", "created"):',
        "for name in ('LastModified', 'last_modified', 'updated', 'mtime', 'created'):",
        "a file system that has both gives them the same time",
    ),
    Equivalent(
        "faust_assigner/app/ledger/topic.py",
        "LedgerTopic._make_smaller",
        "total = len(left[0]) + len(self._key) + 2 * RECORD_BYTES",
        "total = len(left[0]) + len(self._key) + 3 * RECORD_BYTES",
        "a batch of that bound holds one line too: the next one has a key, and a record's own bytes",
    ),
    Equivalent(
        "faust_assigner/app/recovery/progress.py",
        "Progress.end",
        "if began is not None and self._said is not None:",
        "if (self._said is not None):",
        "what was said was said after the beginning, and both are forgotten together; the type needs it",
    ),
    Equivalent(
        "faust_assigner/views/placed.py",
        "Placed._nobody",
        "return np.full(self.layout.tasks, NOBODY, dtype=np.int64)",
        "return np.full(self.layout.tasks, NOBODY)",
        "int64 is the type of a whole number in numpy",
    ),
    Equivalent(
        "faust_assigner/page/render.py",
        "_environment",
        "trim_blocks=True,",
        "trim_blocks=False,",
        "white space between tags, which a browser does not show",
    ),
    Equivalent(
        "faust_assigner/service/view.py",
        "_is_input",
        "before, after = change.before.value, change.after.value",
        "before, after = (change.after.value, change.before.value)",
        "the two are only asked whether they are equal",
    ),
    Equivalent(
        "faust_assigner/app/recovery/unreadable.py",
        "keep",
        'with path.open("a", encoding="utf-8") as file:',
        "with path.open('a') as file:",
        "json.dumps writes ASCII, which is the same in every encoding of a platform",
    ),
    Equivalent(
        "faust_assigner/app/assignor.py",
        "PartitionAssignor.is_followed",
        "return False",
        "pass",
        "the function then returns None, and its callers ask for its truth alone",
    ),
    Equivalent(
        "faust_assigner/wire/runs.py",
        "Runs.below",
        "return self",
        "pass",
        "the lines after it make equal runs where every number is below the limit",
    ),
    Equivalent(
        "faust_assigner/doctor/topics.py",
        "_span",
        "seconds = (retention_ms or 0) / 1000",
        "seconds = (retention_ms or 1) / 1000",
        "a topic that keeps its records for ever has None, and is not described",
    ),
    Equivalent(
        "faust_assigner/actives/semi_matching.py",
        "_Matching._search",
        "look, rounds = 4, 0",
        "look, rounds = 5, 0",
        "a negative cycle stays until a look finds it; the looks are only so rare because they cost time",
    ),
    Equivalent(
        "faust_assigner/app/consumer/commits.py",
        "KeptBack.hide_after_unfinished",
        "later[tp] = [offset for offset in acked[tp] if offset > undone[tp]]",
        "later[tp] = [offset for offset in acked[tp] if (offset >= undone[tp])]",
        "a record that is under way has no acknowledged offset",
    ),
    Equivalent(
        "faust_assigner/app/consumer/commits.py",
        "KeptBack.hide_after_unfinished",
        "acked[tp] = [offset for offset in acked[tp] if offset < undone[tp]]",
        "acked[tp] = [offset for offset in acked[tp] if (offset <= undone[tp])]",
        "a record that is under way has no acknowledged offset",
    ),
    Equivalent(
        "faust_assigner/app/tables/changes.py",
        "Overlay._ready_of_several",
        "if limit is not None and offset > limit:",
        "if limit is not None and (offset >= limit):",
        "the limit is the offset of a change that does not count, and no other change has it",
    ),
    Equivalent(
        "faust_assigner/app/tables/window_times.py",
        "Times.reach",
        "if not waiting or timestamp > waiting[-1].timestamp:",
        "if not waiting or (timestamp >= waiting[-1].timestamp):",
        "a second record of the same time moves the partition's time no further",
    ),
    Equivalent(
        "faust_assigner/app/tables/window_times.py",
        "Times.is_committed",
        "return self._last.get(source, -1) < self._committed.get(source, 0)",
        "return self._last.get(source, -2) < self._committed.get(source, 0)",
        "both numbers are below every committed offset",
    ),
)

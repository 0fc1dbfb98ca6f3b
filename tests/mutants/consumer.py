"""Planted bugs of consumer groups, of classic members inside them, and of migration.

The simulator sees every one of them by itself.
"""

from __future__ import annotations

from tests.mutants import Mutant

_ROOM = "faust_assigner/coordinator/consumer/"
_RECONCILE, _BOOK, _BEAT = f"{_ROOM}reconcile.py", f"{_ROOM}book.py", f"{_ROOM}heartbeat.py"
_TARGETS, _MACHINE = f"{_ROOM}targets.py", f"{_ROOM}machine.py"
_TIMERS = "faust_assigner/coordinator/timers.py"
_FACE, _DOWN, _UP = f"{_ROOM}classic_face.py", f"{_ROOM}migration.py", f"{_ROOM}upgrade.py"
_REFUSALS, _TOPICS, _CORE = f"{_ROOM}refusals.py", f"{_ROOM}subscriptions.py", f"{_ROOM}core.py"
_UNIFORM = "faust_assigner/coordinator/assignors/uniform.py"
_CHANGE = "faust_assigner/coordinator/classic_change.py"
_PROTOCOL = "faust_assigner/coordinator/protocol.py"

_SIMULATOR = (
    "tests/property/machines/test_consumer_machine.py::test_random_lives_keep_every_promise"
)


def bug(file: str, story: str, old: str, new: str) -> Mutant:
    """A bug that the simulator sees."""
    return Mutant(story=story, file=file, old=old, new=new, red=(_SIMULATOR,))


_STEPS = (
    bug(
        _RECONCILE,
        "a topic that is gone is taken away before the next target",
        "return _shed_unread(member, aim, owned) if aim.reads_anew else member",
        "return _shed_unread(member, aim, owned)",
    ),
    bug(
        _RECONCILE,
        "silence counts as having given up",
        "return owned is None or overlaps(owned, revoking)",
        "return owned is not None and overlaps(owned, revoking)",
    ),
    bug(
        _RECONCILE,
        "partitions that others hold are granted",
        "if not aim.taken(topic_id, number):",
        "if True:",
    ),
    bug(
        _RECONCILE,
        "a member waits for partitions without saying so",
        "MemberState.UNRELEASED if blocked else MemberState.STABLE",
        "MemberState.STABLE",
    ),
    bug(
        _RECONCILE,
        "a member reaches the new epoch before it has given up",
        "    if revoke and _still_owns(owned, revoke):\n        return replace(\n            member,\n",
        "    if revoke and _still_owns(owned, revoke):\n        return replace(\n"
        "            member,\n            epoch=aim.epoch,\n",
    ),
    bug(
        _RECONCILE,
        "a step forgets the epoch before it",
        "        aim.epoch,\n        member.epoch,\n",
        "        aim.epoch,\n        aim.epoch,\n",
    ),
    bug(
        _RECONCILE,
        "topics that are read no longer are kept until the next target",
        "    if not unread:\n        return member\n",
        "    return member\n",
    ),
    bug(
        _RECONCILE,
        "what is granted now counts as held since ever",
        "merge(kept, dated(granted, aim.epoch))",
        "merge(kept, dated(granted, 0))",
    ),
    bug(
        _BOOK,
        "a member that goes keeps its instance id",
        "                del self.instances[metadata.instance_id]\n",
        "                pass\n",
    ),
    bug(
        _BOOK,
        "what is being given up is free already",
        "            for held in (current.assigned, current.revoking):\n",
        "            for held in (current.assigned,):\n",
    ),
    bug(
        _BOOK,
        "votes are never withdrawn",
        "        _add(self.votes, [metadata.server_assignor] if metadata.server_assignor else [], step)",
        "        _add(self.votes, [metadata.server_assignor] if metadata.server_assignor else [], 1)",
    ),
    bug(
        _BOOK,
        "a group is stable while somebody is behind",
        "            self.behind.add(member_id)\n",
        "            pass\n",
    ),
)

_HEARTBEATS = (
    bug(
        _BEAT,
        "a higher epoch than the known one is believed",
        "    if received in (JOIN, stood.epoch):\n",
        "    if received in (JOIN, stood.epoch, stood.epoch + 1):\n",
    ),
    bug(
        _BEAT,
        "any epoch before is accepted",
        (
            "    lost_answer = (\n"
            "        received == stood.previous_epoch and owned is not None and within(owned, stood.assigned)\n"
            "    )"
        ),
        "    lost_answer = owned is not None and within(owned, stood.assigned)",
    ),
    bug(
        _BEAT,
        "the epoch before is accepted whatever is owned",
        " and owned is not None and within(owned, stood.assigned)",
        "",
    ),
    bug(
        _BEAT,
        "a member that joins again is fenced",
        "    if received in (JOIN, stood.epoch):\n",
        "    if received == stood.epoch:\n",
    ),
    bug(
        _BEAT,
        "an instance id in use is taken over",
        (
            "        if (\n"
            "            holder is None\n"
            "            or holder in self.book.classic_members\n"
            "            or self.book.at(holder).epoch == AWAY\n"
            "        ):"
        ),
        "        if holder is None or holder in self.book.classic_members or True:",
    ),
    bug(
        _BEAT,
        "a static member comes back with the epoch it left with",
        "replace(stood, epoch=0, previous_epoch=0)",
        "replace(stood, previous_epoch=0)",
    ),
    bug(
        _BEAT,
        "a static member that comes back has lost its target",
        "            if target is not None:\n",
        "            if False:\n",
    ),
    bug(
        _BEAT,
        "a static member that is away is giving up still",
        "replace(stood, epoch=AWAY, revoking={})",
        "replace(stood, epoch=AWAY)",
    ),
    bug(
        _BEAT,
        "a new subscription is no rebalance",
        "        if reads_anew:\n",
        "        if False:\n",
    ),
    bug(
        _BEAT,
        "every heartbeat with a rack or an assignor is a rebalance",
        "        if reads_anew:\n",
        "        if True:\n",
    ),
    bug(
        _BEAT,
        "a leave is no rebalance",
        "        self._raise_epoch(f\"{', '.join(gone)} left\")\n",
        "",
    ),
    bug(
        _BEAT,
        "a session is not renewed by a heartbeat",
        "        self.timers.set(Purpose.SESSION, member_id, self._now + self.limits.session_timeout_ms)\n",
        "        if self.timers.get(Purpose.SESSION, member_id) is None:\n"
        "            self.timers.set(Purpose.SESSION, member_id, "
        "self._now + self.limits.session_timeout_ms)\n",
    ),
    bug(
        _BEAT,
        "the rebalance timer runs on after the revocation",
        "        if after.state is not MemberState.UNREVOKED:\n"
        "            self.timers.drop(Purpose.REBALANCE, member_id)\n",
        "        if after.state is not MemberState.UNREVOKED:\n            pass\n",
    ),
    bug(
        _BEAT,
        "every heartbeat gives a slow member its time again",
        (
            "        elif (\n"
            "            after.revoking != before.revoking\n"
            "            or self.timers.get(Purpose.REBALANCE, member_id) is None\n"
            "        ):"
        ),
        "        elif True:",
    ),
    bug(
        _BEAT,
        "a changed assignment is not told",
        "if changed or _is_full(event) else None",
        "if _is_full(event) else None",
    ),
    bug(
        _BEAT,
        "a full request is not answered in full",
        "if changed or _is_full(event) else None",
        "if changed else None",
    ),
    bug(
        _BEAT,
        "a full group takes one more",
        "            len(book.members) >= self.limits.max_size",
        "            len(book.members) > self.limits.max_size",
    ),
    bug(
        _REFUSALS,
        "a member may join with partitions",
        (
            "    (\n"
            "        lambda e: e.owned is None or bool(e.owned),\n"
            '        "a member that joins must say that it owns nothing",\n'
            "    ),"
        ),
        '    (lambda e: e.owned is None, "a member that joins must say that it owns nothing"),',
    ),
    bug(
        _REFUSALS,
        "any member may leave for a while",
        "(lambda e: e.instance_id is None, ",
        "(lambda e: False, ",
    ),
    bug(
        _TOPICS,
        "an expression matches part of a name",
        "if matcher.fullmatch(name)",
        "if matcher.search(name)",
    ),
)

_GROUP = (
    bug(
        _TARGETS,
        "a target for an earlier group counts as the newest",
        "self._adopt(self._with_successors(event.target, instances), epoch)",
        "self._adopt(self._with_successors(event.target, instances), self.book.epoch)",
    ),
    bug(
        _TARGETS,
        "every change is computed at once",
        "        if due > self._now:\n",
        "        if False:\n",
    ),
    bug(
        _TARGETS,
        "topics that grow are no rebalance",
        "self._fingerprint() != group.fingerprint:",
        "False:",
    ),
    bug(
        _TARGETS,
        "an empty group waits for a target",
        "            self._write(Kind.TARGET_EPOCH, TargetEpoch(self.book.epoch))\n            return\n",
        "            return\n",
    ),
    bug(
        _BOOK,
        "members join with epoch 0 while their target is computed",
        "FIRST_EPOCH: Final = 1 ",
        "FIRST_EPOCH: Final = 0 ",
    ),
    bug(
        _TARGETS,
        "a member may be granted what it gives up itself only later",
        "not in (None, member_id),",
        "is not None,",
    ),
    bug(
        _MACHINE,
        "a save that failed stays in the book",
        "            self._rewind(reversed(undo))\n",
        "",
    ),
    bug(
        _CORE,
        "a save that failed is undone in the wrong order",
        "        for record in undo:\n",
        "        for record in reversed(tuple(undo)):\n",
    ),
    bug(
        _MACHINE,
        "after a restart nobody's silence is noticed",
        "            group._restart_timers(member_id)\n",
        "            pass\n",
    ),
    bug(
        _MACHINE,
        "after a restart a slow member has no end to its time",
        "        if said.classic is None and revokes:\n",
        "        if False:\n",
    ),
    bug(
        _MACHINE,
        "a late epoch may commit anything",
        "            if since is None or since > event.generation:\n",
        "            if False:\n",
    ),
    bug(
        _MACHINE,
        "members commit with an API that is too old",
        "        if not classic and event.api_version < 9 and not event.transactional:\n",
        "        if False:\n",
    ),
    bug(
        _TIMERS,
        "a timer that was moved back rings when it was first due",
        "            if current is not None:\n"
        "                heapq.heappush(self._heap, (current, purpose, member_id))\n",
        "",
    ),
    bug(
        _UNIFORM,
        "one member more than the others gets nothing",
        "classes.setdefault(readers, []).append(topic_id)",
        "classes.setdefault(frozenset(sorted(readers)[:1]), []).append(topic_id)",
    ),
)

_CLASSIC_MEMBERS = (
    bug(
        _FACE,
        "a classic member is not told that what it waits for is free",
        "        return stood.state is MemberState.UNRELEASED and not self._waits(member_id)\n",
        "        return False\n",
    ),
    bug(
        _FACE,
        "a classic member is called to rejoin while others still hold what it waits for",
        "MemberState.UNRELEASED and not self._waits(member_id)",
        "MemberState.UNRELEASED",
    ),
    bug(
        _FACE,
        "a classic member is not told of a newer target",
        "if stood.epoch < self.book.target_epoch or stood.state is MemberState.UNREVOKED:",
        "if stood.state is MemberState.UNREVOKED:",
    ),
    bug(
        _FACE,
        "any generation may sync",
        "        if error is Code.NONE and event.generation != self.book.at(event.member_id).epoch:\n",
        "        if False:\n",
    ),
    bug(
        _FACE,
        "a classic member that was called has no end to its time",
        "            self.timers.set(Purpose.JOIN, member_id, self._now + timeout)\n",
        "            pass\n",
    ),
    bug(
        _FACE,
        "a classic member that joined need not sync",
        "        self.timers.set(Purpose.SYNC, member_id, self._now + event.rebalance_timeout_ms)\n",
        "",
    ),
    bug(
        _FACE,
        "a classic member that did sync is thrown out for not doing so",
        "        self.timers.drop(Purpose.SYNC, member_id)\n",
        "",
    ),
    bug(
        _FACE,
        "a stranger to the protocols of the others is let in",
        "return event.protocol_type == CONSUMER_PROTOCOL_TYPE and common",
        "return event.protocol_type == CONSUMER_PROTOCOL_TYPE",
    ),
    bug(
        _FACE,
        "until empty is not until empty",
        "if not self.limits.migration_policy.mixes:",
        "if False:",
    ),
    bug(
        _FACE,
        "who leaves twice in one request is two rebalances",
        "        if gone:\n            self._remove(gone)\n",
        "        for one in gone:\n            self._remove([one])\n",
    ),
    bug(
        _PROTOCOL,
        "what a classic member owns is not read",
        "            owned = reader.partitions()\n",
        "            reader.partitions()\n",
    ),
    bug(
        _DOWN,
        "the last classic member alone keeps the new protocol",
        "        enough = bool(staying) or replacing\n",
        "        enough = len(staying) > 1 or replacing\n",
    ),
    bug(
        _DOWN,
        "a group is downgraded though the policy forbids it",
        "        allowed = self.limits.migration_policy.downgrades\n",
        "        allowed = True\n",
    ),
    bug(
        _DOWN,
        "a group with members of KIP-848 is downgraded",
        "staying <= self.book.classic_members\n",
        "bool(staying & self.book.classic_members)\n",
    ),
    bug(
        _DOWN,
        "who left is a member of the classic group still",
        "    staying = [m for m in book.members if m not in gone]\n",
        "    staying = list(book.members)\n",
    ),
    bug(
        _DOWN,
        "the generation begins anew",
        "        book.group_id,\n        book.epoch,\n",
        "        book.group_id,\n        1,\n",
    ),
    bug(
        _DOWN,
        "the old group's records stay on disk",
        "        self._batch = [Record(key, None) for key in keys]\n",
        "        self._batch = [Record(key, None) for key in list(keys)[1:]]\n",
    ),
    bug(
        _UP,
        "a group is upgraded though the policy forbids it",
        (
            "    return (\n"
            "        limits.migration_policy.upgrades and group.protocol_type == CONSUMER_PROTOCOL_TYPE and fits\n"
            "    )"
        ),
        "    return group.protocol_type == CONSUMER_PROTOCOL_TYPE and fits",
    ),
    bug(
        _UP,
        "members start the new protocol with nothing",
        "MemberState.STABLE, dated(held, epoch), {})",
        "MemberState.STABLE, {}, {})",
    ),
    bug(
        _UP,
        "a group of other things than consumers is upgraded",
        "group.protocol_type == CONSUMER_PROTOCOL_TYPE and fits",
        "fits",
    ),
    bug(
        _UP,
        "who does not get in changes the protocol for the others",
        "            return effect  # it does not get in, so nothing changes for the others\n",
        "            pass\n",
    ),
    bug(
        _CHANGE,
        "who was parked in the old machine is forgotten",
        "                self._answer_parked(member, Code.REBALANCE_IN_PROGRESS)\n",
        "                pass\n",
    ),
)

MUTANTS = (*_STEPS, *_HEARTBEATS, *_GROUP, *_CLASSIC_MEMBERS)

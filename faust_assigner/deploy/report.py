"""The answer of ``faust-assigner deploy-check``; ``schema.json`` beside this file describes its JSON."""

from __future__ import annotations

from dataclasses import dataclass, field

#: The version of the report; a later version only adds keys.
VERSION = 1

#: The verdicts with their exit codes.
SAFE, NOT_SAFE, CANNOT_TELL = "safe", "not safe", "cannot tell"
EXIT_CODES = {SAFE: 0, NOT_SAFE: 1, CANNOT_TELL: 2}
#: The outcomes of a check.
OK, FAILED, UNKNOWN = "ok", "failed", "unknown"


@dataclass(frozen=True, kw_only=True)
class Check:
    """The result of a check: ``state`` is ``ok``, ``failed`` or ``unknown``; ``text`` is the reason."""

    name: str
    state: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Move:
    """A task with a new owner.

    ``was`` and ``to`` are members' names. ``records`` is the number of changelog records that the new owner
    reads before processing, None if unknown, 0 for a task without a table. ``is_cold``: the new
    owner has none of the state. ``is_behind``: its copy has not caught up. ``pause_s`` is the expected
    downtime of the task, None if unknown.
    """

    topics: tuple[str, ...]
    partition: int
    was: str
    to: str
    is_cold: bool
    is_behind: bool
    records: int | None
    pause_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Step:
    """An event, and its moves.

    ``static`` are the ``stopped`` members with an instance id: the group waits for their return for
    ``session_timeout_s``, and after a return in time no task moves. After a scale-in
    (``is_for_good``) no member returns: the moves follow this wait. ``moves`` happen at once;
    ``later_moves`` happen when the new owner's copy has caught up, so none of them is cold.
    ``cold`` counts the moves to an owner without the state, ``behind`` the moves to a copy that has
    not caught up. ``copy_bytes``
    is the size of the new copies, None if a table's size is unknown.
    """

    event: str
    stopped: tuple[str, ...]
    static: tuple[str, ...]
    session_timeout_s: float | None
    is_for_good: bool
    members: int
    moves: tuple[Move, ...]
    later_moves: int
    copies: int
    copy_bytes: int | None
    pause_s: float | None
    pause: str
    cold: int
    behind: int


@dataclass(frozen=True, kw_only=True)
class Report:
    """The verdict with its reasons. ``pause_s``: the longest pause of all steps, None if any is unknown."""

    group: str
    question: str
    taken_at: float
    verdict: str
    exit_code: int
    checks: tuple[Check, ...]
    moves: int
    cold: int
    behind: int
    later_moves: int
    pause_s: float | None
    steps: tuple[Step, ...]
    problems: tuple[str, ...] = field(default=())
    version: int = VERSION

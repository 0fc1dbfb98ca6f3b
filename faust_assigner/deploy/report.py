"""The answer of ``faust-assigner deploy-check``; ``schema.json`` beside this file describes its JSON."""

from __future__ import annotations

from dataclasses import dataclass, field

#: Of the report; a later version only adds keys.
VERSION = 1

#: The verdicts, and the exit code of each.
SAFE, NOT_SAFE, CANNOT_TELL = "safe", "not safe", "cannot tell"
EXIT_CODES = {SAFE: 0, NOT_SAFE: 1, CANNOT_TELL: 2}
#: What became of a check.
OK, FAILED, UNKNOWN = "ok", "failed", "unknown"


@dataclass(frozen=True, kw_only=True)
class Check:
    """One condition: ``state`` is ``ok``, ``failed`` or ``unknown``, ``text`` names members and numbers."""

    name: str
    state: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Move:
    """A task that gets another owner.

    ``was`` and ``to`` are members' names. ``records`` is how many changelog records the new owner reads
    before it processes, None where that is not known, 0 for a task without a table. ``is_cold``: the new
    owner has none of the state. ``is_behind``: it has a copy that has not caught up. ``pause_s`` is how
    long the task is expected to stand still, None where that is not known.
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
    """One event, and what the planner does then.

    ``static`` are those of the ``stopped`` members that have an instance id: the group waits for them for
    ``session_timeout_s``, and where they are back in time nothing moves. After a scale-in
    (``is_for_good``) no member comes back: the moves are made after that time. ``moves`` are made at once;
    ``later_moves`` follow when the new owner's copy has caught up, so none of them is cold. Of the moves,
    ``cold`` are to an owner without the state, ``behind`` to one whose copy has not caught up. ``copy_bytes``
    are to be read into new copies, None where the size of a table is not known.
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
    """The verdict with its reasons. ``pause_s`` is the longest of all steps, None where one is unknown."""

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

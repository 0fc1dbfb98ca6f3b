"""The choice of the worker that answers a request for a key: the owner or a standby. Pure.

A copy is a standby's table of the key's partition.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

U = TypeVar("U")

#: The maximum number of other workers with a copy to ask: each request takes time, and the client
#: waits.
MOST_COPIES = 2


@dataclass(frozen=True)
class Here:
    """This worker's state of a key's partition.

    ``is_owner``: this worker owns the partition and has restored it, and no other worker can own
    it. ``lag`` is the known number of records that this worker's copy lacks. The copy contains all
    records older than ``age_s`` seconds. Both are None without a copy. ``age_s`` is also None until
    the copy has caught up once.
    """

    is_owner: bool = False
    lag: int | None = None
    age_s: float | None = None

    def is_fresh(self, bound_s: float) -> bool:
        """Return whether the copy has all records older than ``bound_s`` seconds; False for 0."""
        return bound_s > 0 and self.age_s is not None and self.age_s <= bound_s


@dataclass(frozen=True)
class Asked:
    """A request for a key.

    ``changes_nothing`` is True for GET and HEAD, ``is_forwarded`` if a different worker has
    forwarded it.
    """

    changes_nothing: bool = True
    is_forwarded: bool = False


class Who(Enum):
    """The worker that answers, and its role."""

    OWNER_HERE = "this worker, as the owner"
    COPY_HERE = "this worker, from its copy"
    OTHER = "another worker"


@dataclass(frozen=True)
class Step(Generic[U]):
    """One attempt to answer; ``at`` is the URL of a different worker, or None for this worker."""

    who: Who
    at: U | None = None


def steps(
    here: Here, asked: Asked, bound_s: float, *, own: U, owner: U | None, copies: Sequence[U] = ()
) -> tuple[Step[U], ...]:
    """Return the attempts in order; the first success is the answer, else the client gets a 503.

    ``own`` is this worker's URL, ``owner`` the URL of the partition's owner (None if unknown), and
    ``copies`` the URLs of workers with a copy. If this worker is the owner, no other worker is
    asked. A forwarded request is not forwarded again: two workers might send it to each other for
    ever. A request that may change data is never answered from a copy. ``bound_s`` is the greatest
    age of a copy that may answer; with 0 no copy answers.
    """
    if here.is_owner:
        return (Step(Who.OWNER_HERE),)
    found: list[Step[U]] = []
    if not asked.is_forwarded and owner is not None and owner != own:
        found.append(Step(Who.OTHER, owner))
    if not asked.changes_nothing or bound_s <= 0:
        return tuple(found)
    if here.is_fresh(bound_s):
        found.append(Step(Who.COPY_HERE))
    if not asked.is_forwarded:
        found.extend(Step(Who.OTHER, url) for url in _other_copies(copies, {own, owner}))
    return tuple(found)


def _other_copies(copies: Sequence[U], but: Collection[U | None]) -> list[U]:
    return [url for url in dict.fromkeys(copies) if url not in but][:MOST_COPIES]

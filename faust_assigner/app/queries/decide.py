"""The choice of the worker that answers a request for a key: the owner or a fresh copy. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

U = TypeVar("U")

#: The maximum of copies on other workers to ask: each request may take a while, and the client
#: waits.
MOST_COPIES = 2


@dataclass(frozen=True)
class Here:
    """This worker's knowledge of a key's partition.

    ``is_owner``: this worker owns the partition, has restored it, and no other worker can own it by
    now. A copy lacks ``lag`` records, as far as known, and no record that is older than ``age_s``.
    Both are None without a copy. ``age_s`` is also None if the copy was never seen to catch up.
    """

    is_owner: bool = False
    lag: int | None = None
    age_s: float | None = None

    def is_fresh(self, bound_s: float) -> bool:
        """Return whether a copy has all records older than ``bound_s``; always false for 0."""
        return bound_s > 0 and self.age_s is not None and self.age_s <= bound_s


@dataclass(frozen=True)
class Asked:
    """A request: ``changes_nothing`` for GET and HEAD; ``is_forwarded`` if a worker sent it."""

    changes_nothing: bool = True
    is_forwarded: bool = False


class Who(Enum):
    """The worker that is to answer."""

    OWNER_HERE = "this worker, as the owner"
    COPY_HERE = "this worker, from its copy"
    OTHER = "another worker"


@dataclass(frozen=True)
class Step(Generic[U]):
    """One attempt; ``at`` is the URL of a different worker."""

    who: Who
    at: U | None = None


def steps(
    here: Here, asked: Asked, bound_s: float, *, own: U, owner: U | None, copies: Sequence[U] = ()
) -> tuple[Step[U], ...]:
    """Return the attempts in order; the first answer counts, and without one the client gets a 503.

    ``own`` is this worker's URL, ``owner`` the URL of the partition's known owner, ``copies`` the
    URLs of workers with a known copy. If this worker is the owner, no other worker is asked. A
    forwarded request is not forwarded again, so that no two workers send it to each other. A
    request that may change data is never answered from a copy.
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
        found.extend(Step(Who.OTHER, url) for url in _others(copies, {own, owner}))
    return tuple(found)


def _others(copies: Sequence[U], but: Collection[U | None]) -> list[U]:
    return [url for url in dict.fromkeys(copies) if url not in but][:MOST_COPIES]

"""What the service refuses, and what its store could not do.

FaustAssignerError
|- ServiceRefused        the caller asked for what may not be; says what and why
|  |- BadRequest         a name, a number or a topic that cannot be
|  |- NotFound           no such topic, consumer or hand-off
|  |- Replaced           another incarnation of the consumer has taken its place
|  |- Expelled           the incarnation did not release a partition: its session was ended
|  |- WrongCaller        the caller is not whom the hand-off, or the name, belongs to
|  `- WrongPhase         the hand-off has moved on
`- TryAgain
   |- Busy               too many registrations at once
   `- StoreError         the store did not do it, or did not say
      |- StoreUnavailable    no answer in time: it may have been done or not
      |- Compacted           the revision asked for is gone: list again
      |- LeaseLost           the lease has expired, or was revoked
      `- QuotaExceeded       the store is full and takes nothing more
"""

from __future__ import annotations

from faust_assigner.errors import FaustAssignerError, TryAgain

#: Of one consumer, so that nobody fills the store: more is refused.
MAX_CLAIMS = 100_000


class ServiceRefused(FaustAssignerError):
    """The service does not do what the caller asked for."""

    exit_code = 2


class BadRequest(ServiceRefused, ValueError):
    """A name, a number or a topic that cannot be."""


class TooManyClaims(BadRequest):
    """A consumer says more of itself than is kept of one."""

    def __init__(self, name: str, claims: int) -> None:
        super().__init__(f"{name[:200]} says {claims} things of itself, {MAX_CLAIMS} are taken")


class NotFound(ServiceRefused, LookupError):
    """No such topic, consumer or hand-off."""


class WrongCaller(ServiceRefused):
    """The hand-off, or the name, belongs to another consumer."""


class Replaced(ServiceRefused):
    """Another process registered under the same name and took this one's place."""


def replaced(name: str, got: str, current: str) -> Replaced:
    """The refusal of incarnation ``got`` while ``current`` is registered."""
    return Replaced(
        f"{name}: incarnation {got or '(none)'} is replaced by {current or '(none)'}: "
        "stop processing and do not register again"
    )


class Expelled(ServiceRefused):
    """This process did not release a partition: the service ended its session and refuses it from then on."""


def expelled(name: str, incarnation: str) -> Expelled:
    """The refusal of an expelled incarnation."""
    return Expelled(
        f"{name}: incarnation {incarnation or '(none)'} is expelled because it did not release a partition: "
        "stop processing; a new process may register"
    )


class WrongPhase(ServiceRefused):
    """The hand-off is not where this answer fits."""


class Busy(TryAgain):
    """Too many registrations at once: try again, at another instance where there is one."""


class StoreError(TryAgain):
    """The store did not do it."""


class StoreUnavailable(StoreError):
    """No answer within the deadline: what was asked for may have been done, or not."""


class Compacted(StoreError):
    """The history from ``wanted`` on is gone; ``oldest`` is the first revision that is left."""

    def __init__(self, wanted: int, oldest: int) -> None:
        super().__init__(f"revision {wanted} is compacted, the oldest left is {oldest}")
        self.wanted = wanted
        self.oldest = oldest


class LeaseLost(StoreError):
    """The lease has expired or was revoked."""

    def __init__(self, lease_id: int) -> None:
        super().__init__(f"lease {lease_id:x} is gone")
        self.lease_id = lease_id


class QuotaExceeded(StoreError):
    """The store is full: it answers reads and takes no writes until an operator makes room."""


class TooManyOperations(FaustAssignerError, ValueError):
    """A transaction has more operations than the store takes: our own bug."""

    def __init__(self, got: int, limit: int) -> None:
        super().__init__(f"{got} operations in one transaction, the limit is {limit}")

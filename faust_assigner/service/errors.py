"""The refusals of the service, and the failures of its store.

FaustAssignerError
|- ServiceRefused        the service refuses the request; the message has the request and the reason
|  |- BadRequest         a name, a number or a topic is invalid
|  |- NotFound           no such topic, consumer or hand-off
|  |- Replaced           a newer incarnation of the consumer has replaced the caller
|  |- Expelled           the incarnation did not release a partition: its session was ended
|  |- WrongCaller        the hand-off, or the name, belongs to a different caller
|  `- WrongPhase         the answer does not fit the hand-off's current state
`- TryAgain
   |- Busy               too many registrations at once
   `- StoreError         the store call failed, or its outcome is unknown
      |- StoreUnavailable    no answer in time: the store may or may not have carried out the call
      |- NotReached          this instance has not read the revision that the caller has seen
      |- Compacted           the requested revision is compacted: list again
      |- LeaseLost           the lease has expired, or was revoked
      `- QuotaExceeded       the store is full and accepts no more writes
"""

from __future__ import annotations

from faust_assigner.errors import FaustAssignerError, TryAgain

#: Maximum number of claims of one consumer: the service refuses more, which would fill the store.
MAX_CLAIMS = 100_000


class ServiceRefused(FaustAssignerError):
    """The service refuses the caller's request."""

    exit_code = 2


class BadRequest(ServiceRefused, ValueError):
    """A name, a number or a topic is invalid."""


class TooManyClaims(BadRequest):
    """A consumer makes more claims than :data:`MAX_CLAIMS`."""

    def __init__(self, name: str, claims: int) -> None:
        super().__init__(f"{name[:200]} sends {claims} claims; at most {MAX_CLAIMS} are accepted")


class NotFound(ServiceRefused, LookupError):
    """The topic, the consumer or the hand-off does not exist."""


class WrongCaller(ServiceRefused):
    """The hand-off, or the name, belongs to a different consumer."""


class Replaced(ServiceRefused):
    """A newer process registered under the same name and replaced the caller."""


def replaced(name: str, got: str, current: str) -> Replaced:
    """Make the refusal of incarnation ``got`` while ``current`` is registered."""
    return Replaced(
        f"{name}: incarnation {got or '(none)'} is replaced by {current or '(none)'}: stop "
        "processing and do not register again"
    )


class Expelled(ServiceRefused):
    """The process did not release a partition: its session is ended and its calls are refused."""


def expelled(name: str, incarnation: str) -> Expelled:
    """Return the error for a call of an expelled incarnation."""
    return Expelled(
        f"{name}: incarnation {incarnation or '(none)'} is expelled because it did not release a partition: "
        "stop processing; a new process may register"
    )


class WrongPhase(ServiceRefused):
    """The consumer's answer does not fit the hand-off's current state."""


class Busy(TryAgain):
    """Too many registrations at once: try again, if possible at a different instance."""


class StoreError(TryAgain):
    """The store did not carry out a call, or the outcome is unknown."""


class StoreUnavailable(StoreError):
    """The store did not answer before the deadline; it may or may not have carried out the call."""


class NotReached(StoreError):
    """This instance reads the store, but not yet up to the revision that the caller has seen."""


class Compacted(StoreError):
    """The history from ``wanted`` on is compacted; ``oldest`` is the first remaining revision."""

    def __init__(self, wanted: int, oldest: int) -> None:
        super().__init__(f"revision {wanted} is compacted; the oldest revision is {oldest}")
        self.wanted = wanted
        self.oldest = oldest


class LeaseLost(StoreError):
    """The lease has expired or was revoked."""

    def __init__(self, lease_id: int) -> None:
        super().__init__(f"lease {lease_id:x} is gone")
        self.lease_id = lease_id


class QuotaExceeded(StoreError):
    """The store is full: it answers reads and refuses writes until an operator makes room."""


class TooManyOperations(FaustAssignerError, ValueError):
    """A transaction has more operations than the store accepts: a bug of this package."""

    def __init__(self, got: int, limit: int) -> None:
        super().__init__(f"{got} operations in one transaction, the limit is {limit}")

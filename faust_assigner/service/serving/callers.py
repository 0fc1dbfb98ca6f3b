"""Checks whether the caller of a request may act as the consumer."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from faust_assigner.service.errors import Expelled, ServiceRefused, WrongCaller, expelled, replaced
from faust_assigner.service.keys import Keys, checked_consumer, checked_incarnation
from faust_assigner.service.mirror import Mirror
from faust_assigner.service.records import names_itself
from faust_assigner.service.store.base import Store


@dataclass(eq=False, repr=False)
class Callers:
    """Checks callers against the registrations."""

    store: Store
    keys: Keys
    mirror: Mirror

    @contextlib.asynccontextmanager
    async def handle_request(
        self, name: str, identity: str, incarnation: str
    ) -> AsyncIterator[None]:
        """Check the caller, and run the block that handles the request.

        If the block refuses the request of an expelled process, raise Expelled instead. Raises the
        errors of :meth:`check`, too.
        """
        self.check(name, identity, incarnation)
        try:
            yield
        except Expelled:
            raise
        except ServiceRefused:
            # An expelled process must get Expelled, whatever the refusal, so that it stops its work.
            if await self.is_expelled(name, incarnation):
                raise expelled(name, incarnation) from None
            raise

    async def is_expelled(self, name: str, incarnation: str) -> bool:
        """Whether the store has the key that marks this process as expelled."""
        return await self.store.get(self.keys.expelled(name, incarnation)) is not None

    def check(self, name: str, identity: str, incarnation: str) -> None:
        """Check a caller against the registration in this instance's copy of the store.

        Raises BadRequest for an invalid name or incarnation, WrongCaller if the identity differs,
        and Replaced for a replaced process. The copy may be late, so a replaced process may pass
        this check.
        """
        # Check the incarnation, which becomes a part of a key. Incarnations that the service makes
        # begin with ``~``.
        checked_incarnation(incarnation.removeprefix("~"))
        entry = self.mirror.view.consumers.get(checked_consumer(name))
        if entry is None:
            return
        if entry.value.identity and entry.value.identity != identity:
            raise WrongCaller(f"{name} is registered by another identity")
        if incarnation in entry.value.replaced and (
            incarnation or names_itself(entry.value.incarnation)
        ):
            raise replaced(name, incarnation, entry.value.incarnation)

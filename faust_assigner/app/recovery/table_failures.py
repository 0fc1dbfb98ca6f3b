"""Tables that cannot be read or written: the streams stop, and the recovery is repeated.

The changelogs hold the rows that the databases lack, and agents process their unfinished events again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

from mode import get_logger

from faust_assigner.app.retry import RateLimitedLog, pause_s
from faust_assigner.app.tables import flushing

if TYPE_CHECKING:
    from faust_assigner.app.host.table_bases import RecoveryBase as Recovery

logger = get_logger(__name__)

#: Seconds without a failure after which the pause between two retries is short again.
TRUSTED_AFTER_S = 60.0
#: Seconds that agents get to finish their current events when a table fails.
PATIENCE_S = 10.0


class TableFailures:
    """Stops the streams when a table fails, and requests recoveries until the tables work again."""

    def __init__(self, recovery: Recovery, restart: Callable[[], None]) -> None:
        self._recovery, self._restart = recovery, restart
        #: Set at a failure, until the pause before the next recovery begins.
        self.failed = asyncio.Event()
        #: The time at which the last pause ended; 0 before the first failure.
        self.last_at = 0.0
        self._count = 0
        self._said = RateLimitedLog()

    def stop_streams(self, table: str, error: BaseException) -> None:
        """Stop the streams at once, and request a recovery; call this on the app's event loop."""
        recovery, app = self._recovery, self._recovery.app
        flushing.hold(app)
        if self._said.due("tables"):
            outcome = (
                "the worker ends, because its open transactions are incomplete"
                if app.in_transaction
                else "streams stop until the table works again"
            )
            logger.error("Table %s cannot be read or written; %s: %r", table, outcome, error)
        if app.should_stop:
            return
        if app.in_transaction:
            # The open transactions are incomplete: end the process; the broker aborts them.
            recovery.add_future(_raise(error))
            return
        consumer = app.consumer
        consumer.stop_flow()
        app.flow_control.suspend()
        consumer.pause_partitions(consumer.assignment())
        app.flow_control.clear()
        self.failed.set()

    async def repeat_recovery(self) -> None:
        """Pause longer after each failure, then request a new recovery of this generation."""
        recovery = self._recovery
        while not recovery.should_stop:
            if await recovery.wait_for_stopped(self.failed):
                return
            self.failed.clear()
            if not recovery.in_recovery:
                # As at a rebalance, let agents finish their events, so that these are not repeated.
                await recovery.wait(recovery.app.consumer.wait_empty(), timeout=PATIENCE_S)
            calm = monotonic() - self.last_at > TRUSTED_AFTER_S
            self._count = 0 if calm else self._count + 1
            await recovery.sleep(pause_s(self._count))
            self.last_at = monotonic()
            self._restart()


async def _raise(error: BaseException) -> None:
    raise error

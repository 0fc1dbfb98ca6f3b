"""aiokafka's fetcher, except that a live partition does not wait for the idle ones.

There is one fetch in flight for each broker, and the broker holds it until some partition named in it has
records: up to 1.5 s with Faust. A partition that was left out because its last records were not taken yet, or
that is sought, resumed or gained meanwhile, stands still for as long.
"""

from __future__ import annotations

from typing import Any

from aiokafka.consumer.fetcher import Fetcher

#: Milliseconds that a broker may hold a fetch: while a partition is left out of it, and while none is.
WAIT_MS, IDLE_WAIT_MS = 20, 100


class PromptFetcher(Fetcher):  # type: ignore[misc]
    """A fetcher that lets brokers hold a fetch for a moment only. Cost: ten requests a second when idle."""

    def _get_actions_per_node(self, assignment: Any) -> Any:
        self._fetch_max_wait_ms = WAIT_MS if self._records else IDLE_WAIT_MS
        return super()._get_actions_per_node(assignment)

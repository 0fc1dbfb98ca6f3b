"""The assigner service on virtual time: instances, consumers, a store and injected faults.

The real instances run on the in-memory store behind a network that delays, loses and partitions
messages. Each process has its own clock and can be paused or killed. The promises C1-C10 are
checked at every revision and every step.
"""

from __future__ import annotations

from tests.property.service_sim.book import Violation
from tests.property.service_sim.run import run

__all__ = ["Violation", "run"]

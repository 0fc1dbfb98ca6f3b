"""A seeded simulator of a group with both protocols: virtual time, faults, and checked promises.

``run(seed)`` is a life of a group. KIP-848 and classic clients, static and dynamic, join, revoke
slowly, lose answers, repeat requests, switch protocols and crash. Strangers send requests with any
epoch. The disk fails, the broker restarts, and topics appear and disappear. ``rules`` derives the
right answers from snapshots, not from the code under test.
"""

from tests.property.consumer_sim.run import run
from tests.property.lives import Violation

__all__ = ["Violation", "run"]

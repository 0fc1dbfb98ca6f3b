"""A seeded simulator of one group that speaks both protocols: virtual time, faults, every promise checked.

``run(seed)`` is one life: clients of KIP-848 and classic ones, static and dynamic, that join, revoke slowly,
lose answers, repeat themselves, switch protocols and die; strangers with any epoch; a disk that fails,
restarts, topics that come and go. What each answer must be is told by ``rules`` from what was seen, not by
the machine.
"""

from tests.property.consumer_sim.run import run
from tests.property.lives import Violation

__all__ = ["Violation", "run"]

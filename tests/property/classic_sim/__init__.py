"""A seeded simulator of one classic group: clients that follow the protocol, a world that does not.

Requests are lost, repeated and late; members crash, bounce and lie about generations; saves fail; the broker
restarts from its disk. After each event the promises B1-B8 of the broker are checked, at the end B10.

    python -m tests.property.classic_sim --seeds 100000        # or: make sim-classic SEEDS=100000

``world`` draws acts, ``trial`` carries them out on the real group service, ``promises`` judges each by the
``rules`` of the protocol, ``shrink`` makes a failing run short.
"""

from tests.property.classic_sim.run import run
from tests.property.lives import Violation

__all__ = ["Violation", "run"]

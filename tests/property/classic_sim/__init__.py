"""A seeded simulator of a classic group: clients that follow the protocol, in a faulty world.

Requests are lost, repeated and late; members crash, bounce and send wrong generations; saves fail;
the broker restarts from its disk. After each event the promises B1-B8 of the broker are checked, at
the end B10.

    python -m tests.property.classic_sim --seeds 100000        # or: make sim-classic SEEDS=100000

``world`` draws acts, ``trial`` runs them on the real group service, ``promises`` judges each act by
the ``rules`` of the protocol, and ``shrink`` shortens a failing run.
"""

from tests.property.classic_sim.run import run
from tests.property.lives import Violation

__all__ = ["Violation", "run"]

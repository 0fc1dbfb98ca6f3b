"""Storms of valid requests on a whole broker, with refused writes and restarts, beside a model.

    python -m tests.property.broker_sim --seeds 500

Producers of all kinds, members of both group protocols and administrators send requests through
connections without sockets. The store refuses writes at random steps, and the broker is restarted at
random steps, also in the middle of a request. The model is strict: an answer without an error has its
whole effect for ever, and an answer with an error has none.
"""

from tests.property.broker_sim.run import run, run_crowds
from tests.property.lives import Violation

__all__ = ["Violation", "run", "run_crowds"]

"""Where a worker of ``phases.py`` can be held within a cooperative round.

JoinGroup is answered, SyncGroup is not sent; the first round is over, JoinGroup of the second is not sent;
what goes is finished and not committed; what came is opened and not restored.
"""

MODULE = "tests.support.workers.phases"
PLACES = JOINED, BETWEEN, LETTING_GO, RESTORING = "joined", "between", "letting go", "restoring"

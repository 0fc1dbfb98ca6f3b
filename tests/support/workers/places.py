"""The places within a cooperative round at which a worker of ``phases.py`` can be held.

JoinGroup is answered and SyncGroup is not sent; the first round is over and JoinGroup of the second
is not sent; revoked partitions are finished and not committed; gained ones are opened and not
restored.
"""

MODULE = "tests.support.workers.phases"
PLACES = JOINED, BETWEEN, LETTING_GO, RESTORING = "joined", "between", "letting go", "restoring"

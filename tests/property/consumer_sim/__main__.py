"""Search every life of a small consumer group, then run many seeds of a larger one."""

from __future__ import annotations

from tests.property.consumer_sim import run
from tests.property.consumer_sim.exhaustive import Search
from tests.property.lives import main

#: All states take some minutes; a smaller group is searched in the tests.
MEMBERS, PARTITIONS, EPOCHS = 3, 2, 3

if __name__ == "__main__":
    states = Search(MEMBERS, PARTITIONS, EPOCHS).run()
    print(
        f"{states} states of {MEMBERS} members, {PARTITIONS} partitions and {EPOCHS} epochs: "
        "0 violations"
    )
    main(
        "tests.property.consumer_sim", run, lambda stables: f"{sum(stables)} stable states checked"
    )

"""All workers stop and some start late: each gets its former partitions back."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from tests.support.faust_group import WireGroup
from tests.unit.app.rebalance.test_stop_all import LOG, NAMES, TOPICS, owners, scrambled, worker


def with_files(found: WireGroup) -> None:
    """Write each member's actives and standbys of the table to its disk, as RocksDB does."""
    for app in found.apps.values():
        for tp in app.assignor.assigned_actives() | app.assignor.assigned_standbys():
            if tp.topic == LOG:
                database = Path(app.conf.tabledir) / f"totals-{tp.partition}.db"
                database.mkdir(parents=True, exist_ok=True)
                (database / "000001.sst").write_bytes(b"rows")


@pytest.mark.parametrize("files", [True, False])
@pytest.mark.parametrize("order", list(itertools.permutations(NAMES)))
def test_who_starts_late_finds_its_partitions_again(
    order: tuple[str, ...], files: bool, tmp_path: Path
) -> None:
    """Each round adds a worker, in any order; the fewest moves restore the former assignment."""
    store: dict[str, Any] = {"store": "rocksdb://" if files else "memory://"}
    found = scrambled(tmp_path, **store)
    before = owners(found)
    with_files(found)
    again = WireGroup(TOPICS)
    moved = []
    for name in order:
        again.add(name, worker(tmp_path / name, **store), TOPICS)
        again.rebalance(order[0])
        moved.append(again.apps[order[0]].assignor.last_round.plan.moves)
    assert moved == [0, 3, 2]
    assert owners(again) == before
    again.rebalance(order[0])
    assert owners(again) == before

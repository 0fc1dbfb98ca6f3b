"""``faust-assigner serve`` as a process, and consumers over real sockets; the state in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.assigner import QUICK, Consumer, consumers, instances, settled

pytestmark = pytest.mark.processes


async def test_one_consumer_gets_all_and_two_share(tmp_path: Path) -> None:
    """The second one warms its half before it is given; nobody works on a partition of the other's."""
    with instances(tmp_path, *QUICK, "--topic", "orders=8") as (service,):
        async with consumers(Consumer(service.target, "a")) as (first,):
            await settled([first], [8])
            assert first.warmed == []
            async with consumers(Consumer(service.target, "b")) as (second,):
                await settled([first, second], [4, 4])
                assert sorted(second.warmed) == sorted(second.working)
        assert service.stop() == 0

"""The end of a consumer that leaves: every partition is released, whatever happens to the others."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from faust_assigner.service.client import Lost, Release, TopicPartition
from faust_assigner.service.client.handlers import Jobs

T0, T1, T2, U0 = (*(TopicPartition("t", n) for n in range(3)), TopicPartition("u", 0))


class Work:
    """Handlers: a partition's release fails, hangs, or ends."""

    def __init__(self, **how: Any) -> None:
        self.how, self.told = how, []  # type: ignore[var-annotated]

    async def release(self, command: Release) -> int | None:
        """Note the release, and what became of it."""
        self.told.append(command)
        how = self.how.get(str(command.partition).replace("/", ""))
        if isinstance(how, BaseException):
            raise how
        if how is not None:
            try:
                await asyncio.sleep(how)
            except asyncio.CancelledError:
                self.told.append(f"{command.partition} cancelled")
                raise
        return 1

    async def lost(self, command: Lost) -> None:
        """Note the loss."""
        self.told.append(command)


@pytest.mark.parametrize("error", [RuntimeError("full"), OSError("disk"), KeyError("k")])
async def test_a_last_release_that_fails_is_logged_and_no_loss(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody is told the reason: no other consumer can take the partition."""
    work: Any = Work(t1=error)
    await Jobs(None, work).finish([T0, T1, T2], 5.0)  # type: ignore[arg-type]
    assert work.told == [Release(at, new_owner="") for at in (T0, T1, T2)]
    said = [one.getMessage() for one in caplog.records if one.name.endswith("client.handlers")]
    assert said == ["Could not release t/1"]


async def test_releases_that_take_too_long_are_lost_in_order() -> None:
    """They are cancelled first; those that ended are not lost."""
    work: Any = Work(u0=60.0, t2=60.0)
    await Jobs(None, work).finish([U0, T0, T2], 0.01)  # type: ignore[arg-type]
    releases = [Release(at, new_owner="") for at in (U0, T0, T2)]
    assert work.told[:3] == releases
    assert set(work.told[3:5]) == {"u/0 cancelled", "t/2 cancelled"}
    assert work.told[5:] == [Lost((T2, U0))]


async def test_without_partitions_nothing_is_awaited() -> None:
    """Neither a release nor a loss."""
    work: Any = Work()
    await Jobs(None, work).finish([], 60.0)  # type: ignore[arg-type]
    assert work.told == []

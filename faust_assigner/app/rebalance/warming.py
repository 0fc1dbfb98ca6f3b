"""The warm-up policy from an app's settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faust_assigner.app.settings import read_or_default
from faust_assigner.settings import table
from faust_assigner.warmup import WarmupPolicy

if TYPE_CHECKING:
    from faust.types.app import AppT

#: A member without state reads this number of records almost at once. In a cooperative group a task
#: with a longer changelog waits for a warm-up, because a follow-up round comes soon and stops no
#: member.
SHORT = 100


def uses_warmups(app: AppT) -> bool:
    """Return whether this worker uses warm-ups and requests the follow-up rounds that end them."""
    return (
        bool(read_or_default(app, table.WARMUPS)) and read_or_default(app, table.FOLLOW_UP_S) != 0
    )


def policy_of(app: AppT, is_cooperative: bool) -> WarmupPolicy | None:
    """Return the policy; None if warm-ups are off or this worker requests no follow-up rounds."""
    if not uses_warmups(app):
        return None
    lag = read_or_default(app, table.ACCEPTABLE_RECOVERY_LAG)
    from_nothing = read_or_default(app, table.ACCEPTABLE_FROM_NOTHING)
    if from_nothing is None:
        from_nothing = SHORT if is_cooperative else lag
    return WarmupPolicy(
        acceptable_recovery_lag=lag,
        acceptable_from_nothing=from_nothing,
        max_per_member=read_or_default(app, table.MAX_WARMUPS),
        max_per_group=read_or_default(app, table.MAX_GROUP_WARMUPS),
    )

"""ListGroups and DescribeGroups: the shown groups, and the answer for a missing group."""

from __future__ import annotations

import pytest

from faust_assigner.coordinator.events import CommitOffsets
from tests.support.asking import ask
from tests.support.hall import Hall, in_hall

LIST, DESCRIBE = 16, 15
NOT_FOUND = 69


def found(hall: Hall) -> None:
    """Make the group "g", which is Empty and classic."""
    hall.node.groups.ask(
        "g", lambda token: CommitOffsets(token, "", -1, None, 8, partitions=()), lambda reply: None
    )


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ({"states_filter": (" empty ",)}, ["g"]),
        ({"states_filter": ("Stable", "EMPTY")}, ["g"]),
        ({"states_filter": ("Stable",)}, []),
        ({"types_filter": ("Classic",)}, ["g"]),
        ({"types_filter": ("consumer",)}, []),
        ({"states_filter": ("Empty",), "types_filter": ("consumer",)}, []),
    ],
)
def test_groups_are_listed_by_state_and_by_type(
    filters: dict[str, tuple[str, ...]], names: list[str]
) -> None:
    """Filters ignore case and surrounding blanks, as tools take them from the command line."""

    async def story(hall: Hall) -> list[str]:
        found(hall)
        values = {"states_filter": (), "types_filter": (), **filters}
        return [group.group_id for group in (await ask(hall, LIST, 5, **values)).groups]

    assert in_hall(story) == names


@pytest.mark.parametrize(("version", "error"), [(5, 0), (6, NOT_FOUND)])
def test_a_group_that_is_not_there_is_dead_and_an_error_since_version_6(
    version: int, error: int
) -> None:
    """KIP-1043: older versions show a missing group as a dead group without an error."""

    async def story(hall: Hall) -> tuple[int, str]:
        (group,) = (await ask(hall, DESCRIBE, version, groups=("ghost",))).groups
        return int(group.error_code), group.group_state

    assert in_hall(story) == (error, "Dead")

"""The whole grid of a look made by hand: each place, shape, shade, label and sum.

No two figures are equal, partition numbers have gaps, and one owner is not a member any more.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from faust_assigner.page import grid as under_test
from faust_assigner.page.grid import Grid, grid_of, packed
from faust_assigner.page.tasks import Family, Task
from faust_assigner.status.build import build
from faust_assigner.status.report import Copy, Partition, Report, Standstill
from tests.support.status import group
from tests.unit.page.test_whole import drawn

LOG = "shop-totals-changelog"


def part(
    topic: str, number: int, lag: int | None = None, *copies: Copy, **more: object
) -> Partition:
    """A partition; its owner is that of its task."""
    base: dict[str, object] = {
        "topic": topic,
        "partition": number,
        "is_changelog": topic == LOG,
        "owner": None,
        "committed": None,
        "end": None,
        "lag": lag,
        "standing": None,
        "copies": copies,
    }
    return Partition(**(base | more))  # type: ignore[arg-type]


def copy(member: str, lag: int | None, *, warms: bool = False, measured: bool = True) -> Copy:
    """A copy of a table's partition."""
    return Copy(member=member, is_warmup=warms, lag=lag, seconds=None, is_measured=measured)


def task(topic: str, number: int, owner: str | None, *parts: Partition) -> Task:
    """A task of these partitions."""
    return Task(key=f"{topic}/{number}", number=number, owner=owner, partitions=parts)


def still(reason: str, seconds: float) -> Standstill:
    """A standstill."""
    return Standstill(reason=reason, seconds=seconds)


ORDERS = Family(
    topics=("orders", LOG),
    label="orders, table totals",
    tasks=(
        task("orders", 1, "w-2", part("orders", 1, 5), part(LOG, 1, None, copy("w-10", 0))),
        task(
            "orders",
            4,
            None,
            part("orders", 4, 101),
            part(LOG, 4, None, copy("w-2", 7, warms=True, measured=False), copy("w-10", None)),
        ),
        task(
            "orders",
            106,
            "w-10",
            part("orders", 106, None, standing=still("paused", 5.0)),
            part(
                LOG,
                106,
                None,
                copy("w-2", 20),
                copy("w-2", 11_000, warms=True),
                copy("solo", 3, measured=False),
                standing=still("group", 70.0),
            ),
        ),
    ),
)
RATES = Family(
    topics=("rates",),
    label="rates",
    tasks=(
        task("rates", 2, "gone", part("rates", 2, 8)),
        task("rates", 3, "w-2", part("rates", 3, 0)),
        task("rates", 8, None, part("rates", 8, 9)),
    ),
)
FAMILIES = (ORDERS, RATES)


def reported() -> Report:
    """Three members whose sums differ; only their own figures are read."""
    found = build(group(3).evidence())
    figures = (("w-10", 31, 6, None), ("w-2", 14, 20, 11_007), ("solo", None, None, None))
    return replace(
        found,
        members=tuple(
            replace(one, name=name, lag=lag, standby_lag=standbys, warmup_lag=warmups)
            for one, (name, lag, standbys, warmups) in zip(found.members, figures, strict=True)
        ),
    )


REPORT = reported()


def found(families: tuple[Family, ...] = FAMILIES) -> Grid:
    """The grid of the look."""
    return grid_of(REPORT, families)


COLUMNS = """\
cell 16 width 112 tasks 6 packed False
orders, table totals at 0-48: ((0, 'orders, …'),) ((24, '4'), (40, '106'))
rates at 64-48: ((64, 'rates'),) ((72, '2'), (104, '8'))
no owner bad 'these tasks have no owner' lag None behind None owns 2 copies 0 ()
  16 x2 0/4 orders/4 '' orders/4: no owner, lag 101
  96 x1 1/8 rates/8 '' rates/8: no owner, lag 9
solo good 'ready' lag None behind None owns 0 copies 1 ()
  32 s1 0/106 orders/106 '' orders/106: standby, at most 3 behind
w-2 good 'ready' lag 14 behind 11027 owns 2 copies 2 ()
  0 a1 0/1 orders/1 '' orders/1: active, lag 5
  16 w1 0/4 orders/4 '' orders/4: warm-up, at most 7 behind
  32 w4 0/106 orders/106 '' orders/106: warm-up, 11,020 behind
  80 a0 1/3 rates/3 '' rates/3: active, lag 0
w-10 good 'ready' lag 31 behind 6 owns 1 copies 2 ()
  0 s0 0/1 orders/1 '' orders/1: standby, 0 behind
  16 su 0/4 orders/4 '' orders/4: standby, lag unknown
  32 xu 0/106 orders/106 '' orders/106: active, not processed for 1 min 10 s: group
"""


def test_every_mark_of_a_grid_has_its_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """In small cells only even numbers are written; the row without an owner is first."""
    monkeypatch.setattr(under_test, "_CELLS", ((26, 2), (20, 4)))
    assert list(drawn(found())) == COLUMNS.splitlines()


PACKED = """\
cell 26 width 379 tasks 6 packed True
owns at 0-189: ((0, 'owns'),) ()
copies at 217-162: ((217, 'copies'),) ()
no owner bad 'these tasks have no owner' lag None behind None owns 2 copies 0 ((2, 'orders, t…'), (120, 'rates'))
  74 x2 0/4 orders/4 '4' orders/4: no owner, lag 101
  159 x1 1/8 rates/8 '8' rates/8: no owner, lag 9
solo good 'ready' lag None behind None owns 0 copies 1 ((219, 'orders, t…'),)
  291 s1 0/106 orders/106 '106' orders/106: standby, at most 3 behind
w-2 good 'ready' lag 14 behind 11027 owns 2 copies 2 ((2, 'orders, t…'), (120, 'rates'), (219, 'orders, t…'))
  74 a1 0/1 orders/1 '1' orders/1: active, lag 5
  159 a0 1/3 rates/3 '3' rates/3: active, lag 0
  291 w1 0/4 orders/4 '4' orders/4: warm-up, at most 7 behind
  335 w4 0/106 orders/106 '106' orders/106: warm-up, 11,020 behind
w-10 good 'ready' lag 31 behind 6 owns 1 copies 2 ((2, 'orders, t…'), (219, 'orders, t…'))
  74 xu 0/106 orders/106 '106' orders/106: active, not processed for 1 min 10 s: group
  291 s0 0/1 orders/1 '1' orders/1: standby, 0 behind
  335 su 0/4 orders/4 '4' orders/4: standby, lag unknown
"""  # noqa: E501


def test_every_mark_of_a_packed_grid_has_its_place() -> None:
    """Owned tasks come first, then warm-ups before standbys; each family has its own step."""
    assert list(drawn(packed(found(), FAMILIES))) == PACKED.splitlines()


ONE = """\
cell 26 width 86 tasks 3 packed True
owns at 0-30: ((0, 'owns'),) ()
copies at 58-28: ((58, 'copies'),) ()
no owner bad 'these tasks have no owner' lag None behind None owns 1 copies 0 ()
  0 x1 0/8 rates/8 '8' rates/8: no owner, lag 9
solo good 'ready' lag None behind None owns 0 copies 0 ()
w-2 good 'ready' lag 14 behind 11027 owns 1 copies 0 ()
  0 a0 0/3 rates/3 '3' rates/3: active, lag 0
w-10 good 'ready' lag 31 behind 6 owns 0 copies 0 ()
"""


def test_a_packed_grid_of_one_family_does_not_repeat_its_name() -> None:
    """Without copies, the column of copies is empty."""
    assert list(drawn(packed(found((RATES,)), (RATES,)))) == ONE.splitlines()


@pytest.mark.parametrize(("most", "cell"), [(6, 26), (5, 20)])
def test_the_size_of_a_cell_follows_the_number_of_tasks(
    most: int, cell: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit of a size is included."""
    monkeypatch.setattr(under_test, "_CELLS", ((26, most), (20, 6)))
    assert found().cell == cell
    monkeypatch.setattr(under_test, "_CELLS", ((26, 1), (20, 5)))
    assert found().cell == 16


def test_a_grid_is_packed_above_its_widest_and_compact_from_a_number_of_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The row without an owner counts as a row; the limit of the width is included."""
    monkeypatch.setattr(under_test, "PACKED_FROM", found().width)
    monkeypatch.setattr(under_test, "COMPACT_FROM", 4)
    assert (found().is_packed, found().is_compact) == (False, True)
    monkeypatch.setattr(under_test, "PACKED_FROM", found().width - 1)
    monkeypatch.setattr(under_test, "COMPACT_FROM", 5)
    assert (found().is_packed, found().is_compact) == (True, False)


def test_a_grid_without_tasks_is_as_wide_as_a_cell() -> None:
    """The page divides by no width of zero."""
    made = found(())
    assert (made.width, made.heads, made.tasks) == (26, (), 0)
    assert [(row.name, row.marks, row.owned) for row in made.rows] == [
        ("solo", (), 0),
        ("w-2", (), 0),
        ("w-10", (), 0),
    ]

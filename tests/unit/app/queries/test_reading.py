"""The rows that an answer for a key may read, and the headers that describe the copy."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP
from multidict import CIMultiDict

from faust_assigner.app.queries.decide import Here, Who
from faust_assigner.app.queries.reading import AGE, KEY, LAG, ROLE, Reading, scoped, table_route
from faust_assigner.app.tables.scope import SCOPE, NotHere, ScopedTable
from faust_assigner.app.tables.store import WriteBehindStore


def test_an_answer_from_two_copies_names_the_greatest_lag_and_the_greatest_age() -> None:
    """A better copy may be read last."""
    known = {TP("a", 0): Here(lag=7, age_s=2.0), TP("b", 0): Here(lag=1, age_s=0.5)}
    standing: Any = SimpleNamespace(
        app=SimpleNamespace(tables={}), bound_s=30.0, here=known.__getitem__
    )
    reading = Reading(standing, None, "k", TP("a", 0), Who.COPY_HERE)
    reading._require_fresh(TP("b", 0))
    assert reading.headers() == {ROLE: "standby", LAG: "7", AGE: "2.000"}


class Store:
    """A store of a table with text keys."""

    def __init__(
        self, name: str, *, windowed: bool = False, partitions: tuple[int, ...] = (0,)
    ) -> None:
        self._dbs = dict.fromkeys(partitions, "db")
        self.table = SimpleNamespace(
            name=name,
            window="window" if windowed else None,
            is_global=False,
            changelog_topic=SimpleNamespace(get_topic_name=lambda: name),
        )

    def key_of(self, key: bytes) -> Any:
        """Return the key of a row."""
        text = key.decode()
        return text if self.table.window is None else (text, (0.0, 10.0))


A0, A1, A2 = (TP("a", number) for number in range(3))


class Worker:
    """A worker's status: its owned partitions and the known state of its copies."""

    bound_s = 30.0

    def __init__(self, *owned: TP, **groups: int) -> None:
        self.owned, self.known = set(owned), dict[TP, Here]()
        ids = {"a": 1, "b": 1, **groups}
        self.app = SimpleNamespace(
            tables={}, assignor=SimpleNamespace(group_for_topic=ids.__getitem__)
        )

    def is_owner(self, tp: TP) -> bool:
        """Return whether the partition is owned."""
        return tp in self.owned

    def here(self, tp: TP) -> Here:
        """Return the known state."""
        return Here(is_owner=True) if tp in self.owned else self.known.get(tp, Here())


def test_an_owner_looks_for_the_key_in_its_partition_first() -> None:
    """Then it reads its other open partitions: a producer may use its own partitioner."""
    store = Store("a", partitions=(2, 0, 1))
    reading = Reading(Worker(A0, A2), store.table, "k", A2, Who.OWNER_HERE)  # type: ignore[arg-type]
    assert reading.partitions_for(store, b"k") == [2, 0]
    assert reading.partitions_for(store, b"other") is None
    assert reading.partitions_for(Store("b"), b"k") is None, "of another table as ever"
    assert reading.headers() == {ROLE: "owner"}


def test_an_owner_that_lost_the_partition_meanwhile_does_not_answer() -> None:
    """The next owner has newer rows."""
    store = Store("a")
    reading = Reading(Worker(), store.table, "k", A0, Who.OWNER_HERE)  # type: ignore[arg-type]
    with pytest.raises(NotHere):
        reading.partitions_for(store, b"k")


def test_from_a_copy_the_row_of_the_key_alone_is_read() -> None:
    """Tables with equal partitioning may be read as well; a window of the key counts as its row."""
    worker = Worker(b2=2)
    worker.known = {tp: Here(lag=0, age_s=1.0) for tp in (A1, TP("b", 1), TP("w", 1))}
    store = Store("a", partitions=(0, 1))
    reading = Reading(worker, store.table, 7, A1, Who.COPY_HERE)  # type: ignore[arg-type]
    assert reading.partitions_for(store, b"7") == [1], "a number is text in a URL"
    assert reading.partitions_for(Store("b", windowed=True, partitions=(1,)), b"7") == [1]
    with pytest.raises(NotHere, match="the row of the requested key"):
        reading.partitions_for(store, b"8")
    with pytest.raises(NotHere, match="is not partitioned like"):
        reading.partitions_for(Store("b2"), b"7")


def test_an_old_copy_does_not_answer() -> None:
    """The check runs at first and for each further table."""
    worker = Worker()
    worker.known = {A0: Here(lag=9, age_s=31.0)}
    with pytest.raises(NotHere, match="too old"):
        Reading(worker, None, "k", A0, Who.COPY_HERE)  # type: ignore[arg-type]
    worker.known = {A0: Here(lag=9, age_s=29.0), TP("b", 0): Here(lag=0, age_s=31.0)}
    reading = Reading(worker, None, "k", A0, Who.COPY_HERE)  # type: ignore[arg-type]
    with pytest.raises(NotHere, match="too old"):
        reading.partitions_for(Store("b"), b"k")


@pytest.mark.parametrize(
    ("who", "is_global", "may"),
    [(Who.OWNER_HERE, False, True), (Who.COPY_HERE, True, True), (Who.COPY_HERE, False, False)],
)
def test_only_an_owner_reads_a_table_as_a_whole(who: Who, is_global: bool, may: bool) -> None:
    """Any worker may read a global table."""
    worker = Worker()
    worker.known = {A0: Here(lag=0, age_s=0.0)}
    reading = Reading(worker, None, "k", A0, who)  # type: ignore[arg-type]
    table = SimpleNamespace(is_global=is_global)
    if may:
        reading.may_read_all(table)
    else:
        with pytest.raises(NotHere):
            reading.may_read_all(table)


class View:
    """Stand in for a Faust view."""

    web = SimpleNamespace(json=lambda said, **options: (said["error"], options))


async def answered(reading: Any, answer: Any) -> Any:
    """Return a view's answer to a request with this reading."""
    seen: list[Any] = []

    async def view(view: Any, request: Any) -> Any:
        seen.append(SCOPE.get())
        return answer()

    response = await scoped(view)(View(), {KEY: reading})
    assert seen == [reading if isinstance(reading, Reading) else None]
    assert SCOPE.get() is None
    return response


async def test_a_view_reads_in_the_scope_of_its_request_and_the_answer_says_so() -> None:
    """A request without a reading has no extra headers."""
    reading = Reading(Worker(A0), None, "k", A0, Who.OWNER_HERE)  # type: ignore[arg-type]
    response = await answered(reading, lambda: SimpleNamespace(headers={"a": "b"}))
    assert response.headers == {"a": "b", ROLE: "owner"}
    response = await answered(reading, lambda: SimpleNamespace(headers=CIMultiDict({"a": "b"})))
    assert response.headers == CIMultiDict({"a": "b", ROLE: "owner"}), "as a web server's answer"
    response = await answered(None, lambda: SimpleNamespace(headers={"a": "b"}))
    assert response.headers == {"a": "b"}


@pytest.mark.parametrize("in_files", [False, True])
async def test_rows_in_memory_that_left_during_the_request_are_no_answer(in_files: bool) -> None:
    """The view would see missing rows or empty sets; a store in files refuses such a read itself."""
    worker, store = Worker(A0), Store("a")
    store.table.data = object.__new__(WriteBehindStore) if in_files else {}
    reading = Reading(worker, store.table, "k", A0, Who.OWNER_HERE)  # type: ignore[arg-type]

    def answer() -> Any:
        worker.owned.clear()
        return SimpleNamespace(headers={}, status=200)

    response = await answered(reading, answer)
    if in_files:
        assert (response.status, response.headers[ROLE]) == (200, "owner")
    else:
        error, options = response
        assert (options["status"], "has just left this worker" in error) == (503, True)


async def test_a_view_that_may_not_read_is_a_503_that_says_when_to_ask_again() -> None:
    """Any other error is raised; the scope ends in both cases."""
    reading = Reading(Worker(A0), None, "k", A0, Who.OWNER_HERE)  # type: ignore[arg-type]

    def fail(error: Exception) -> Any:
        raise error

    error, options = await answered(reading, lambda: fail(NotHere("this worker's copy is too old")))
    assert "too old" in error
    assert options == {"status": 503, "headers": {"Retry-After": "1", ROLE: "none"}}
    with pytest.raises(ValueError, match="a bug"):
        await answered(reading, lambda: fail(ValueError("a bug")))
    assert SCOPE.get() is None


class Stored:
    """A table whose rows are in a store of class ``kind``."""

    def __init__(self, kind: type, name: str = "rows") -> None:
        self.name, self.data = name, kind.__new__(kind)


class Guarded(ScopedTable):
    """A table created by the app's own methods."""

    data: Any = "in memory"

    def __init__(self) -> None:
        """Set no attributes."""


def test_a_copy_answers_only_where_every_table_of_the_app_is_guarded() -> None:
    """A view may read any table; the owner's view is not restricted."""
    worker = Worker()
    worker.known = {A0: Here(lag=2, age_s=3.0)}
    worker.app.tables = {"rows": Stored(WriteBehindStore), "guarded": Guarded()}
    reading = Reading(worker, None, "k", A0, Who.COPY_HERE)  # type: ignore[arg-type]
    assert (reading.lag, reading.age_s) == (2, 3.0)
    worker.app.tables["own"] = Stored(dict, "own")
    with pytest.raises(NotHere, match=r"table own was not created by app\.Table"):
        Reading(worker, None, "k", A0, Who.COPY_HERE)  # type: ignore[arg-type]
    Reading(worker, None, "k", A0, Who.OWNER_HERE)  # type: ignore[arg-type]


def test_a_copy_that_has_become_the_owner_meanwhile_lacks_nothing() -> None:
    """A copy of unknown lag counts as complete up to its age."""
    worker = Worker(A0)
    reading = Reading(worker, None, "k", A0, Who.COPY_HERE)  # type: ignore[arg-type]
    assert reading.headers() == {ROLE: "standby", LAG: "0", AGE: "0.000"}
    worker.owned.clear()
    worker.known = {A0: Here(lag=None, age_s=1.23456)}
    reading = Reading(worker, None, "k", A0, Who.COPY_HERE)  # type: ignore[arg-type]
    assert reading.headers() == {ROLE: "standby", LAG: "0", AGE: "1.235"}


def test_a_key_that_does_not_decode_is_another_key() -> None:
    """The owner may search all its partitions for the key."""
    store = Store("a")
    reading = Reading(Worker(A0), store.table, "k", A0, Who.OWNER_HERE)  # type: ignore[arg-type]
    assert reading.partitions_for(store, b"\xff") is None


def test_tables_of_one_topic_need_no_common_group() -> None:
    """The check finds the key's own table before it looks up groups."""
    worker = Worker()
    worker.known = {A0: Here(lag=0, age_s=1.0)}
    worker.app.assignor.group_for_topic = None  # type: ignore[attr-defined]
    store = Store("a")
    reading = Reading(worker, store.table, "k", A0, Who.COPY_HERE)  # type: ignore[arg-type]
    assert reading.partitions_for(store, b"k") == [0]


async def test_a_view_gets_its_arguments_and_any_answer_is_passed_on() -> None:
    """Answers without mutable headers and calls without a request pass unchanged."""
    reading = Reading(Worker(A0), None, "k", A0, Who.OWNER_HERE)  # type: ignore[arg-type]
    seen: list[Any] = []

    async def view(view: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        """The app's."""
        seen.append((view, args, kwargs, SCOPE.get()))
        return kwargs["answer"]

    wrapped = scoped(view)
    assert (wrapped.__name__, wrapped.__doc__) == ("view", "The app's.")
    for answer in ("text", SimpleNamespace(headers=(("a", "b"),))):
        assert await wrapped("view", {KEY: reading}, 1, 2, answer=answer) is answer
    assert await wrapped("view", None, 3, answer="direct") == "direct"
    assert await wrapped("view", {KEY: "no reading"}, 4, answer="other") == "other"
    assert [(view, args, scope) for view, args, _, scope in seen] == [
        ("view", (1, 2), reading),
        ("view", (1, 2), reading),
        ("view", (3,), None),
        ("view", (4,), None),
    ]


async def test_the_routes_of_tables_read_in_the_scope_of_their_request() -> None:
    """The app's own method declares the route with all its arguments."""
    declared: list[Any] = []

    def declare(*args: Any, **options: Any) -> Any:
        declared.append((args, options))
        return lambda view: ("route", view)

    async def view(view: Any, request: Any) -> Any:
        return SCOPE.get()

    kind, made = table_route(declare, "table", "key", exact_key="k")(view)
    assert (kind, declared) == ("route", [(("table", "key"), {"exact_key": "k"})])
    reading = Reading(Worker(A0), None, "k", A0, Who.OWNER_HERE)  # type: ignore[arg-type]
    assert await made(View(), {KEY: reading}) is reading


def test_an_owners_other_partitions_are_searched_in_order() -> None:
    """The key's own partition comes first, regardless of the order of opening."""
    store = Store("a", partitions=(3, 1, 0, 2, 4))
    owned = (TP("a", number) for number in (0, 1, 2, 3))
    reading = Reading(Worker(*owned), store.table, "k", A2, Who.OWNER_HERE)  # type: ignore[arg-type]
    assert reading.partitions_for(store, b"k") == [2, 0, 1, 3]

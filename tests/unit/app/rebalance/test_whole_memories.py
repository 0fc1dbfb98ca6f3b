"""A member's memory file to its edges, and the comparison of what a static member offers."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.app.rebalance import memory_file
from faust_assigner.app.rebalance.memory_file import (
    NAME,
    FormerPartitions,
    MemoryFile,
    has_other_offers,
    offers_of,
)
from faust_assigner.errors import MetadataRefused
from faust_assigner.wire.bounded import LARGEST_INT
from faust_assigner.wire.join import JoinData

TOPICS = ["log", "orders"]
DIGEST = hashlib.sha256(b"log\norders").hexdigest()


def file_of(folder: Path, app_id: str = "shop") -> MemoryFile:
    """Return a process's view of the file in ``folder``."""
    return MemoryFile(SimpleNamespace(conf=SimpleNamespace(appdir=folder, id=app_id)), Counter())


def test_the_whole_file_of_an_assignment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process writes a file of its own name first; topics are sorted, ranges are lists."""
    renamed: list[Any] = []
    replace = os.replace
    monkeypatch.setattr(
        memory_file.os, "replace", lambda *names: (renamed.append(names), replace(*names))
    )
    offers = {"capacity": 2.5, "rack": None, "topics": "digest"}
    file_of(tmp_path).keep(7, {"orders": [0, 3], "log": range(2, 5)}, offers)
    path = tmp_path / NAME
    assert path.read_text() == (
        '{"version":1,"app":"shop","generation":7,"actives":{"log":[2,3,4],"orders":[0,3]},'
        '"offers":{"capacity":2.5,"rack":null,"topics":"digest"}}'
    )
    assert renamed == [(path.with_name(f"{NAME}.{os.getpid()}.tmp"), path)]
    found = file_of(tmp_path).former()
    assert (found.generation, found.offers) == (7, offers)
    assert {t: list(n) for t, n in found.actives.items()} == {"log": [2, 3, 4], "orders": [0, 3]}
    file_of(tmp_path).keep(8, {})
    assert json.loads(path.read_text())["offers"] == {}


@pytest.mark.parametrize("generation", [0, 1, LARGEST_INT - 1])
def test_the_first_and_the_last_generation_are_remembered(tmp_path: Path, generation: int) -> None:
    """Kafka's generations begin at 1, those of a leader without Kafka's number at 0."""
    file_of(tmp_path).keep(generation, {"orders": [3]})
    assert file_of(tmp_path).former().generation == generation


@pytest.mark.parametrize("app_id", [None, "", "Shop", "shop ", 7])
def test_a_file_without_the_name_of_the_app_is_refused(tmp_path: Path, app_id: object) -> None:
    """The folder may be shared, and the partitions may be of a different app."""
    said = {"version": 1, "app": app_id, "generation": 7, "actives": {"orders": [0]}}
    (tmp_path / NAME).write_text(json.dumps(said))
    with pytest.raises(MetadataRefused, match="belongs to a different app"):
        memory_file.read(tmp_path / NAME, "shop")


def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    """A worker reads once and writes at each of its assignments, for months."""
    os.mkfifo(tmp_path / "pipe")
    file_of(tmp_path).keep(1, {"orders": [3]})
    before = sorted(os.listdir("/proc/self/fd"))
    for generation in range(2, 5):
        file_of(tmp_path).keep(generation, {"orders": [3]})
        file_of(tmp_path).former()
        with pytest.raises(MetadataRefused, match="is not a file"):
            memory_file.read(tmp_path / "pipe", "shop")
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_a_write_that_cannot_be_renamed_leaves_the_old_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is raised as it is."""
    memory_file.write(tmp_path / NAME, "shop", 6, {"orders": [1]}, {})

    def refuse(*_: object) -> None:
        raise PermissionError("read-only")

    with monkeypatch.context() as patched:
        patched.setattr(memory_file.os, "replace", refuse)
        with pytest.raises(PermissionError):
            memory_file.write(tmp_path / NAME, "shop", 7, {"orders": [2]}, {})
    assert os.listdir(tmp_path) == [NAME]
    assert memory_file.read(tmp_path / NAME, "shop").generation == 6


def test_the_offers_of_a_join() -> None:
    """The digest is of the subscription in its order; without metadata nothing is offered."""
    said = JoinData("http://w", rack_id="r1", capacity=2.5)
    assert offers_of(said, TOPICS) == {"capacity": 2.5, "rack": "r1", "topics": DIGEST}
    assert offers_of(None, TOPICS) == {}


SAME = {"capacity": 2.5, "rack": "r1", "topics": DIGEST}


@pytest.mark.parametrize(
    ("offers", "is_other"),
    [
        (SAME, False),
        ({}, False),
        ({"rack": "r1"}, False),
        (SAME | {"capacity": 2.0}, True),
        (SAME | {"rack": None}, True),
        (SAME | {"topics": "another"}, True),
        ({"topics": "another"}, True),
    ],
)
@pytest.mark.parametrize("instance_id", ["one", None])
def test_a_file_of_the_same_generation_is_compared_offer_by_offer(
    offers: dict[str, Any], is_other: bool, instance_id: str | None
) -> None:
    """An offer that an older version did not write is unknown, and the topics do not matter."""
    said = JoinData("http://w", rack_id="r1", capacity=2.5, instance_id=instance_id)
    former = FormerPartitions(5, {}, offers)
    for planned, given in (((), ()), (("other",), ("other",))):
        found = has_other_offers(said, TOPICS, former, generation=5, planned=planned, given=given)
        assert found is is_other


@pytest.mark.parametrize(
    ("planned", "given", "is_other"),
    [
        (["log", "orders", "bills"], ["log"], False),
        (["log", "orders"], ["log", "orders"], False),
        (["log", "orders"], [], False),
        (["log"], ["log"], True),
        (["log", "orders", "bills"], ["log", "bills"], True),
        ([], ["log"], False),
        ([], ["bills"], True),
        ([], [], False),
    ],
)
def test_without_such_a_file_the_topics_of_the_answer_are_compared(
    planned: list[str], given: list[str], is_other: bool
) -> None:
    """Only a static member rejoins without a round; a stock leader's answer has no groups."""
    for generation, instance_id in ((6, "one"), (4, "one"), (6, None)):
        said = JoinData("http://w", rack_id="r2", instance_id=instance_id)
        former = FormerPartitions(5, {}, SAME)
        found = has_other_offers(
            said, TOPICS, former, generation=generation, planned=planned, given=given
        )
        assert found is (is_other and instance_id is not None)
    nothing = FormerPartitions()
    assert not has_other_offers(None, TOPICS, nothing, generation=6, planned=planned, given=given)
    assert not has_other_offers(None, TOPICS, nothing, generation=-1, planned=planned, given=given)

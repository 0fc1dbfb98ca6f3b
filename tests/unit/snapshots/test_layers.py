"""Changes upon a previous snapshot: kept files, new files, and the model's rows."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from faust_assigner.snapshots.layers import (
    Base,
    Layers,
    Row,
    _are_changes_large,
    _rows_between,
    extend,
)
from faust_assigner.snapshots.sst import OFFSET_KEY, SstFile, read_items, write_files

FILE_BYTES = 4_000
KEYS = [b"key-%04d" % number for number in range(600)]


def first_layer(folder: Path, state: dict[bytes, bytes]) -> Base:
    """Return a whole snapshot with file names of an earlier snapshot."""
    rows = sorted((state | {OFFSET_KEY: b"0"}).items())
    files = write_files(rows, folder / "first", max_file_bytes=FILE_BYTES)
    return Base((tuple(map(earlier, files)),), len(state))


def earlier(file: SstFile) -> SstFile:
    """Return a file as listed by the next snapshot."""
    name = file.name if "/" in file.name else f"{file.path.parts[-3]:0>20}/{file.name}"
    return SstFile(name, file.path, file.size, file.keys)


def upon(
    base: Base, folder: Path, changes: dict[bytes, bytes | None], *, max_layers: int = 8
) -> tuple[Layers, int]:
    """Return the layers after ``changes``, and the number of keys; the offset always changes."""
    rows: list[Row] = sorted((changes | {OFFSET_KEY: folder.name.encode()}).items())
    return extend(base, rows, folder, max_layers=max_layers, max_file_bytes=FILE_BYTES)


def rows_of(layers: Layers) -> dict[bytes, bytes]:
    """Return a store's rows after ingesting the layers."""
    rows = dict(read_items([file.path for layer in layers for file in layer]))
    del rows[OFFSET_KEY]
    return rows


def applied(state: dict[bytes, bytes], changes: dict[bytes, bytes | None]) -> dict[bytes, bytes]:
    """Return the model's rows after the changes."""
    after = dict(state)
    for key, value in changes.items():
        if value is None:
            after.pop(key, None)
        else:
            after[key] = value
    return after


@pytest.fixture
def state() -> dict[bytes, bytes]:
    """Return 600 rows in several files."""
    noise = random.Random(1)
    return {key: noise.randbytes(30) for key in KEYS}


def new_files(layers: Layers) -> list[SstFile]:
    """Return the files written by this snapshot."""
    return [file for layer in layers for file in layer if "/" not in file.name]


def test_a_few_changes_are_one_small_layer_upon_the_files_of_the_base(
    tmp_path: Path, state: dict[bytes, bytes]
) -> None:
    """A change, a deletion and a new key leave the first layer's files and match the model."""
    base = first_layer(tmp_path, state)
    changes = {KEYS[3]: b"new", KEYS[400]: None, b"key-0007a": b"between", b"zz": b""}
    layers, keys = upon(base, tmp_path / "1", changes)
    assert layers[:-1] == base.layers
    assert len(base.layers[0]) > 3
    assert [file.keys for file in new_files(layers)] == [len(changes) + 1]
    assert rows_of(layers) == applied(state, changes)
    assert keys == len(state) + 1


def test_rows_that_the_base_has_already_are_not_written(
    tmp_path: Path, state: dict[bytes, bytes]
) -> None:
    """An equal value and the deletion of a missing key write only the new offset."""
    base = first_layer(tmp_path, state)
    layers, keys = upon(base, tmp_path / "1", {KEYS[5]: state[KEYS[5]], b"absent": None})
    assert [file.keys for file in new_files(layers)] == [1]
    assert keys == len(state)


def test_layers_beyond_the_bound_are_merged_into_one(
    tmp_path: Path, state: dict[bytes, bytes]
) -> None:
    """A key with its original value is in no change layer; a deleted key stays deleted."""
    base = first_layer(tmp_path, state)
    old, model, counts = state[KEYS[9]], state, []
    for number, value in enumerate((b"1", b"2", None, old), 1):
        changes = {KEYS[9]: value, KEYS[number]: None}
        model = applied(model, changes)
        layers, keys = upon(base, tmp_path / f"{number}", changes, max_layers=3)
        counts.append(len(layers))
        assert (rows_of(layers), keys) == (model, len(model))
        base = Base(tuple(tuple(map(earlier, layer)) for layer in layers), keys)
    assert counts == [2, 3, 4, 2]
    assert [file.keys for file in layers[1]] == [1 + 4], "four deletions and the offset"


@pytest.mark.parametrize("max_layers", [8, 0])
def test_large_changes_write_only_their_key_ranges_anew(
    tmp_path: Path, state: dict[bytes, bytes], max_layers: int
) -> None:
    """More than half of the first layer changed, or no layers are permitted: other files stay."""
    base = first_layer(tmp_path, state)
    noise = random.Random(2)
    changes: dict[bytes, bytes | None] = {key: noise.randbytes(60) for key in KEYS[:300]}
    layers, keys = upon(base, tmp_path / "1", changes, max_layers=max_layers)
    [only] = layers
    assert rows_of(layers) == applied(state, changes)
    assert keys == len(state)
    kept = [file for file in only if "/" in file.name]
    # The keys before the last changed range, and Faust's offset in the first range.
    assert kept == [*base.layers[0][-len(kept) :]]
    assert 2 <= len(kept) < len(base.layers[0]) - 1
    starts = [next(iter(read_items([file.path])))[0] for file in only]
    assert starts == sorted(starts)


@pytest.mark.parametrize("place", [1, 2, -3, -2, -1])
def test_each_file_is_written_anew_from_its_first_key_to_the_next_file(
    tmp_path: Path, state: dict[bytes, bytes], place: int
) -> None:
    """The files have each key once; only the changed file and the offset's file are new."""
    base = first_layer(tmp_path, state)
    [first] = base.layers
    key = next(iter(read_items([first[place].path])))[0]
    [only], _ = upon(base, tmp_path / "1", {key: b"new"}, max_layers=0)
    kept = [file for file in first if file not in (first[0], first[place])]
    assert [file for file in only if "/" in file.name] == kept
    keys = [key for file in only for key, _ in read_items([file.path])]
    assert keys == sorted({*state, OFFSET_KEY})
    assert rows_of((only,)) == state | {key: b"new"}


def test_changes_below_half_of_the_first_layer_are_only_merged(
    tmp_path: Path, state: dict[bytes, bytes]
) -> None:
    """With one layer permitted, the second change is merged with the first."""
    base = first_layer(tmp_path, state)
    layers, keys = upon(base, tmp_path / "1", {KEYS[1]: b"a"}, max_layers=1)
    base = Base(tuple(tuple(map(earlier, layer)) for layer in layers), keys)
    layers, _ = upon(base, tmp_path / "2", {KEYS[599]: b"b"}, max_layers=1)
    assert layers[0] == base.layers[0]
    assert [file.keys for layer in layers[1:] for file in layer] == [3]


@pytest.mark.parametrize("seed", range(4))
def test_random_changes_give_the_models_rows(tmp_path: Path, seed: int) -> None:
    """Changes are few or many, in hot ranges, outside all files, or empty a range."""
    noise = random.Random(seed)
    model = {key: noise.randbytes(20) for key in noise.sample(KEYS, 300)}
    base, max_layers = first_layer(tmp_path, model), seed
    for number in range(1, 9):
        start = noise.randrange(len(KEYS))
        some = noise.choice([KEYS[start : start + 80], noise.sample(KEYS, 5), [b"a", b"zz"]])
        changes = {key: noise.choice([None, noise.randbytes(20)]) for key in some}
        model = applied(model, changes)
        layers, keys = upon(base, tmp_path / f"{number}", changes, max_layers=max_layers)
        assert (rows_of(layers), keys) == (model, len(model)), f"seed {seed}, step {number}"
        assert len(layers) <= max_layers + 1
        base = Base(tuple(tuple(map(earlier, layer)) for layer in layers), keys)


@pytest.mark.parametrize(("changes", "is_large"), [((30, 20), False), ((30, 21), True)])
def test_changes_of_half_the_first_layer_are_not_large_yet(
    changes: tuple[int, ...], is_large: bool
) -> None:
    """The size of a layer is the sum of its files."""
    layers = [[SstFile(str(size), Path(str(size)), size, 1)] for size in changes]
    first = [SstFile(name, Path(name), 50, 1) for name in "ab"]
    assert _are_changes_large(layers, first) is is_large


def test_the_changes_of_all_layers_together_are_large_or_not(
    tmp_path: Path, state: dict[bytes, bytes]
) -> None:
    """Each change is a fifth of the first layer; the third change rewrites key ranges."""
    base, model, counts = first_layer(tmp_path, state), state, []
    noise = random.Random(3)
    for number in range(3):
        some = KEYS[120 * number : 120 * (number + 1)]
        changes: dict[bytes, bytes | None] = {key: noise.randbytes(30) for key in some}
        model = applied(model, changes)
        layers, keys = upon(base, tmp_path / f"{number}", changes)
        counts.append(len(layers))
        assert (rows_of(layers), keys) == (model, len(model))
        base = Base(tuple(tuple(map(earlier, layer)) for layer in layers), keys)
    assert counts == [2, 3, 1]


@pytest.mark.parametrize("share", [1, 4])
def test_files_of_layers_that_were_merged_are_removed(
    tmp_path: Path, state: dict[bytes, bytes], share: int
) -> None:
    """Only the result's new files are published, after merging ranges or changes."""
    base = first_layer(tmp_path, state)
    for number in range(2):
        folder = tmp_path / f"{number}"
        noise = random.Random(number)
        changes: dict[bytes, bytes | None] = {
            key: noise.randbytes(30) for key in KEYS[number : 100 * share : 2]
        }
        layers, keys = upon(base, folder, changes, max_layers=1)
        left = {path.name for path in (folder / "out").iterdir()}
        assert left == {file.name for file in new_files(layers)}
        base = Base(tuple(tuple(map(earlier, layer)) for layer in layers), keys)
    assert len(layers) == (2 if share == 1 else 1)


@pytest.mark.parametrize("last", [b"a", b"z"])
def test_the_differences_lead_from_either_state_to_the_other(last: bytes) -> None:
    """Each state has keys before, between and after the other's."""
    one = {b"b": b"1", b"d": b"2", b"e": b"3", b"g": b"4", last: b"5"}
    other = {b"c": b"6", b"d": b"2", b"e": b"7", b"f": b"8"}
    for before, after in ((one, other), (other, one), (one, {}), ({}, one)):
        found = list(_rows_between(sorted(before.items()), sorted(after.items())))
        assert found == [
            (key, after.get(key))
            for key in sorted({*before, *after})
            if before.get(key) != after.get(key)
        ]

"""The loads of tasks, and the chunks of packed files."""

from __future__ import annotations

from faust_assigner.pipeline.ledgers.chunks import Chunk, cut, pack


def test_a_load_is_in_the_order_of_its_files_and_positions() -> None:
    """Loads are of about equal bytes; tiny files are spread by their number."""
    sizes = {"d": 100, "b": 70_000, "c": 60_000, "a": 40_000, "e": 30_000}
    chunks = [Chunk(name, 5, 5 + size) for name, size in sizes.items()]
    loads = pack(chunks, 2)
    assert [[chunk.name for chunk in load] for load in loads] == [["b", "d", "e"], ["a", "c"]]
    tiny = [Chunk(f"f{number}", 0, 1) for number in range(6)]
    assert [len(load) for load in pack([Chunk("big", 0, 9_000), *tiny], 3)] == [1, 3, 3]
    assert pack(chunks[:1], 4) == [(chunks[0],)]
    assert pack([], 0) == []


def test_a_packed_file_is_one_chunk_from_its_start() -> None:
    """Its size says nothing of the position in its content."""
    for suffix in ("gz", "bz2", "xz"):
        name = f"w.jsonl.{suffix}"
        assert cut(name, 50, 40, 10, inode=7) == [Chunk(name, 0, 40, 7)]
        assert cut(name, 0, 0, 10) == []
    (only,) = cut("w.jsonl", 3, 9, 10, inode=7)
    assert (only.start, only.end, only.inode) == (3, 9, 7)
    assert cut("w.jsonl", 9, 9, 10) == []

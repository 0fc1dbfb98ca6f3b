"""Damage to the files of a table while its worker is down."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

#: A function that damages the folder of a database.
Damage: TypeAlias = Callable[[Path], None]


def truncate(pattern: str) -> Damage:
    """Halve the files that match."""

    def damage(database: Path) -> None:
        for file in database.glob(pattern):
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])

    return damage


def scramble(pattern: str) -> Damage:
    """Flip bits throughout the files that match."""

    def damage(database: Path) -> None:
        for file in database.glob(pattern):
            file.write_bytes(
                bytes(
                    byte ^ 0x5A if at % 17 == 9 else byte
                    for at, byte in enumerate(file.read_bytes())
                )
            )

    return damage


def remove(pattern: str) -> Damage:
    """Remove the files that match."""

    def damage(database: Path) -> None:
        for file in database.glob(pattern):
            file.unlink()

    return damage


def replace_by_file(database: Path) -> None:
    """Replace the folder by a file."""
    for file in database.glob("*"):
        file.unlink()
    database.rmdir()
    database.write_bytes(b"no folder")

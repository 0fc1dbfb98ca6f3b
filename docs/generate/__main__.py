"""Writes the generated pages of docs/reference/ anew: ``python -m docs.generate``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from docs.generate import doctor, duties, host, metrics, schemas, settings

REFERENCE: Final = Path(__file__).parents[1] / "reference"
#: Whole pages.
PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "deploy-check.md": schemas.deploy_check_page,
    "doctor.md": doctor.page,
    "duties.md": duties.page,
    "host.md": host.page,
    "metrics.md": metrics.page,
    "status.md": schemas.status_page,
}
#: Pages with tables in a text that is written by hand: the function replaces the tables.
TABLES: Final[Mapping[str, Callable[[str], str]]] = {
    "broker.md": settings.broker_page,
    "service.md": settings.service_page,
    "settings.md": settings.settings_page,
}


def write_pages(folder: Path) -> None:
    """Write all generated pages in ``folder``, and the tables of the other pages there."""
    for name, page in PAGES.items():
        (folder / name).write_text(page(), encoding="utf-8")
    for name, renewed in TABLES.items():
        path = folder / name
        path.write_text(renewed(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    write_pages(REFERENCE)

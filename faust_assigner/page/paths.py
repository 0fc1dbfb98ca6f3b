"""The paths of the page, relative to the page's address. This module imports nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

EVENTS: Final = "events"
STATIC: Final[Mapping[str, str]] = {
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
#: The paths of the page, without ``events``, which is a stream.
PATHS: Final = ("", "parts", "story", *STATIC)

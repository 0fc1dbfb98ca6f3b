"""The worker process under test with a page that blocks its event loop: ``/hold/SECONDS``."""

from __future__ import annotations

import time
from typing import Any

from tests.support.workers.app import app


@app.page("/hold/{seconds}")  # type: ignore[untyped-decorator]
async def hold(view: Any, request: Any, seconds: str) -> Any:
    """Block the worker's loop for ``seconds``."""
    time.sleep(float(seconds))
    return view.json({"held": seconds})


if __name__ == "__main__":
    app.main()

"""The command; its parts are in the modules beside it."""

from __future__ import annotations

from faust_assigner.service.conformance.command import main

if __name__ == "__main__":
    main()

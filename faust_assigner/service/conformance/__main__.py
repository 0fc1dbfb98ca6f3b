"""The entry point of the command."""

from __future__ import annotations

from faust_assigner.service.conformance.command import main

if __name__ == "__main__":
    main()

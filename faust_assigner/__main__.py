"""``python -m faust_assigner`` is the ``faust-assigner`` command."""

from faust_assigner.cli import main

if __name__ == "__main__":
    main(prog_name="faust-assigner")

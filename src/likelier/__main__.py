"""``python -m likelier``: the ``likelier`` command, for where it is not on the path."""

from likelier.cli import main

if __name__ == "__main__":
    main(prog_name="likelier")

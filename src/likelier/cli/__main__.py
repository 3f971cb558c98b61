"""``python -m likelier.cli``, for where the ``likelier`` command is not on the path."""

from likelier.cli import main

if __name__ == "__main__":
    main()

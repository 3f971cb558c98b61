"""``python -m likelier.cli``, for environments without the ``likelier`` command on the path."""

from likelier.cli import main

if __name__ == "__main__":
    main()

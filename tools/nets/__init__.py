"""Cases that an old commit and the present source both run, for `same.py` and `speed.py`."""

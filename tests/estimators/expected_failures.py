"""scikit-learn checks that mathematics forbids an estimator to pass, each with its reason.

This is the only place where such an exception may be declared; the README states how many there
are, and a test compares.
"""

EXPECTED_FAILURES: dict[str, dict[str, str]] = {}

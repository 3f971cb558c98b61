"""Words and rows that `SVC` and `SVR` refuse, and what they say then."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from likelier import SVC, SVR

both = pytest.mark.parametrize("kind", [SVC, SVR])


def rows(n=40):
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, 3)), np.arange(n) % 2


@both
@pytest.mark.parametrize("value", ["x", -1, 2**32, 1.5])
def test_a_random_state_that_is_none_is_named(kind, value):
    X, y = rows()
    with pytest.raises(ValueError, match=f"'random_state' parameter .*Got {value!r}"):
        kind(random_state=value).fit(X, y)


@both
@pytest.mark.parametrize(
    ("value", "error"), [("x", TypeError), (None, TypeError), (-1, ValueError)]
)
def test_verbose_is_yes_or_no_or_a_level(kind, value, error):
    X, y = rows()
    with pytest.raises(error, match="'verbose' parameter"):
        kind(verbose=value).fit(X, y)


@both
def test_random_states_and_levels_that_are_some(kind):
    X, y = rows()
    for value in (None, 0, np.int64(3), np.random.RandomState(0)):
        kind(random_state=value).fit(X, y)
    for value in (False, np.bool_(False), 0, 1):
        kind(verbose=value).fit(X, y)


@both
@pytest.mark.parametrize("matrix", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize(
    ("kernel", "scale", "size"),
    [("rbf", 1e160, "large"), ("rbf", 1e-160, "small"), ("laplacian", 1e160, "large")],
)
def test_rows_whose_variance_is_no_number_are_told_not_gamma(kind, kernel, matrix, scale, size):
    X, y = rows()
    model = kind(kernel=kernel)
    for weight in (None, 1.0 + y):
        with pytest.raises(ValueError, match=f"X is too {size}.*gamma.*squares.*rescale X"):
            model.fit(matrix(scale * X), y, sample_weight=weight)
    assert not hasattr(model, "support_")


@both
def test_large_and_small_rows_within_range_are_learned_all_the_same(kind):
    X, y = rows()
    usual = kind().fit(X, y).predict(X)
    for scale in (2.0**-480, 2.0**480):
        np.testing.assert_allclose(kind().fit(scale * X, y).predict(scale * X), usual, atol=1e-6)
    constant = kind().fit(np.full((40, 3), 5.0), y)
    assert constant._gamma == 1.0

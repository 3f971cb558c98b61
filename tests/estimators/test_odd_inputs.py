"""Inputs that are not what they seem: every public estimator works or says what to do."""

from __future__ import annotations

import numpy as np
import polars
import pytest
from scipy import sparse
from sklearn.base import is_regressor
from sklearn.utils.validation import has_fit_parameter
from tests.estimators.test_damaged_matrices import ESTIMATORS, make

import likelier
from likelier.fitting.dataset import is_stream

X = np.random.default_rng(0).poisson(1.0, (40, 3)).astype(np.float64)
every_estimator = pytest.mark.parametrize("name", ESTIMATORS)
STREAMING = [name for name in ESTIMATORS if "(X, y)" in (make(name).fit.__doc__ or "")]
LEARNING = [name for name in ESTIMATORS if hasattr(make(name), "predict")]
WEIGHING = [name for name in ESTIMATORS if has_fit_parameter(make(name), "sample_weight")]
REGRESSORS = [name for name in ESTIMATORS if is_regressor(make(name))]


def targets(name):
    labels = np.arange(len(X)) % 2
    return labels + X[:, 0] if name in REGRESSORS else labels


class Blocks:
    """Blocks that can be iterated over again and again, as those of a data loader."""

    def __init__(self, *blocks):
        self.blocks = blocks

    def __iter__(self):
        yield from self.blocks


class NumberedBlocks(Blocks):
    """The same with items."""

    def __getitem__(self, number):
        return self.blocks[number]


def test_kinds_are_found():
    assert {"LinearRegressor", "SVR"} <= set(REGRESSORS)
    assert {"LinearClassifier", "BayesianLinearClassifier", "GaussianNB"} <= set(STREAMING)
    assert "SVC" not in STREAMING


@every_estimator
def test_a_lazy_frame_is_refused_with_the_remedy(name):
    lazy = polars.LazyFrame(X)
    with pytest.raises(TypeError, match=r"X.collect\(\)"):
        make(name).fit(lazy, targets(name))
    if name in LEARNING:
        with pytest.raises(TypeError, match=r"y.collect\(\)"):
            make(name).fit(X, polars.LazyFrame({"y": targets(name)}))
    if name in STREAMING:
        with pytest.raises(ValueError, match=r"X.collect\(\)"):
            make(name).fit(iter([(lazy, targets(name))]))


def test_a_lazy_frame_is_refused_by_predictions_too():
    model = likelier.LinearClassifier().fit(X, targets("LinearClassifier"))
    with pytest.raises(TypeError, match=r"X.collect\(\)"):
        model.predict(polars.LazyFrame(X))


@pytest.mark.parametrize("name", LEARNING)
@pytest.mark.parametrize("imaginary", [0j, 1j])
def test_complex_targets_are_refused(name, imaginary):
    y = targets(name) + imaginary
    with pytest.raises(ValueError, match="[Cc]omplex"):
        make(name).fit(X, y)
    with pytest.raises(ValueError, match="[Cc]omplex"):
        make(name).fit(X, y.tolist())
    if name in STREAMING:
        with pytest.raises(ValueError, match="[Cc]omplex"):
            make(name).fit(lambda: iter([(X, y)]))


@every_estimator
def test_complex_rows_are_refused(name):
    for rows in (X + 1j, X + 0j, sparse.csr_array(X + 1j)):
        with pytest.raises(ValueError, match="Complex data not supported"):
            make(name).fit(rows, targets(name))
        if name in STREAMING:
            with pytest.raises(ValueError, match="Complex data not supported"):
                make(name).fit([(rows, targets(name))])


@pytest.mark.parametrize("name", WEIGHING)
def test_masked_weights_are_refused(name):
    """What is behind the mask would count as if it were meant."""
    weight = np.ma.masked_array(np.ones(len(X)), np.arange(len(X)) == 3)
    with pytest.raises(ValueError, match=r"sample_weight.filled\(...\)"):
        make(name).fit(X, targets(name), sample_weight=weight)
    if hasattr(make(name), "partial_fit"):
        with pytest.raises(ValueError, match=r"sample_weight.filled\(...\)"):
            make(name).partial_fit(X, targets(name), sample_weight=weight)
    with pytest.raises(ValueError, match="[Cc]omplex"):
        make(name).fit(X, targets(name), sample_weight=np.ones(len(X)) + 1j)


def test_masked_weights_without_a_masked_one_are_weights():
    weight = np.ma.masked_array(np.arange(1.0, 41.0), False)
    one, two = (
        likelier.LinearRegressor(random_state=0).fit(X, targets("LinearRegressor"), sample_weight=w)
        for w in (weight, weight.data)
    )
    assert np.array_equal(one.coef_, two.coef_)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", STREAMING)
@pytest.mark.parametrize(
    "kind", [polars.DataFrame, lambda rows: polars.DataFrame(rows).to_pandas()]
)
def test_a_list_of_blocks_may_hold_frames(name, kind):
    y = targets(name)
    parts = [(X[:20], y[:20]), (X[20:], y[20:])]
    frames = [(kind(rows), labels) for rows, labels in parts]
    one, two = (make(name).set_params(random_state=0).fit(blocks) for blocks in (parts, frames))
    assert np.array_equal(one.predict(X), two.predict(X))


@pytest.mark.parametrize("name", STREAMING)
def test_a_list_of_blocks_with_a_lazy_frame_is_refused_with_the_remedy(name):
    with pytest.raises(ValueError, match=r"X.collect\(\)"):
        make(name).fit([(polars.LazyFrame(X), targets(name))])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", STREAMING)
def test_an_object_of_blocks_is_a_stream(name):
    y = targets(name)
    parts = (X[:20], y[:20]), (X[20:], y[20:])
    expected = make(name).set_params(random_state=0).fit(lambda: iter(parts)).predict(X)
    for blocks in (Blocks(*parts), NumberedBlocks(*parts), parts):
        model = make(name).set_params(random_state=0).fit(blocks)
        assert np.array_equal(model.predict(X), expected)


@pytest.mark.parametrize(
    "data",
    [
        X, X.tolist(), tuple(map(tuple, X)), list(X), [tuple(row) for row in X], memoryview(X),
        [], (), {}, range(3), {"a": [1.0]}, None, 3, sparse.csr_matrix(X), sparse.coo_array(X),
        polars.DataFrame(X), polars.LazyFrame(X), polars.DataFrame(X).to_arrow(),
        polars.DataFrame(X).to_pandas(),
    ],
    ids=lambda data: type(data).__name__,
)  # fmt: skip
def test_rows_in_memory_are_no_stream(data):
    assert not is_stream(data)


@pytest.mark.parametrize(
    "given",
    [{}, {"loss": "hinge"}, {"inference__sampler": "gibbs"}, {"prior_precision": 1.0}],
    ids=str,
)
@pytest.mark.parametrize("scale", [1e12, 1e18, 1e-18])
def test_weights_of_very_unlike_scales_fit_or_are_refused_by_name(given, scale):
    rng = np.random.default_rng(0)
    rows, weight = rng.normal(size=(40, 5)), np.ones(40)
    weight[:2] = scale
    model = likelier.BayesianLinearClassifier(
        inference=likelier.MCMC("auto", n_chains=2, n_draws=10, n_warmup=10), random_state=0
    ).set_params(**given)
    told = ""
    try:
        model.fit(rows, np.arange(40) % 2, sample_weight=weight)
    except ValueError as error:
        told = str(error)
    if told:
        assert "sample_weight" in told and "reduce the range" in told
    else:
        assert np.isfinite(model.predict_proba(rows)).all()


@pytest.mark.parametrize("bayesian", [False, True])
@pytest.mark.parametrize("matrix", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize(
    "method", ["predict", "predict_proba", "predict_log_proba", "predict_joint_log_proba"]
)
def test_counts_that_are_none_are_refused_by_predictions(bayesian, matrix, method):
    model = likelier.MultinomialNB(bayesian=bayesian).fit(X, targets("MultinomialNB"))
    rows = X.copy()
    for value, told in ((-1.0, "Negative"), (-1e308, "Negative"), (1e308, "too large in column 2")):
        rows[3, 2] = value
        with pytest.raises(ValueError, match=told):
            getattr(model, method)(matrix(rows))
    rows[3, 2] = 1e280
    assert not np.isnan(getattr(model, method)(matrix(rows)).astype(np.float64)).any()


def test_counts_too_large_are_refused_by_fit():
    with pytest.raises(ValueError, match="too large in column 0"):
        likelier.MultinomialNB().fit(np.full((40, 3), 1e308), targets("MultinomialNB"))

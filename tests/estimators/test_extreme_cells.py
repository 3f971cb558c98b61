"""A few damaged cells, or a column of tiny numbers, are told of: a fit would ignore the column."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from likelier import (
    MCMC,
    SVC,
    SVR,
    BayesianKernelClassifier,
    BayesianKernelRegressor,
    BayesianLinearClassifier,
    DeepGPClassifier,
    DeepGPRegressor,
    GaussianNB,
    LinearClassifier,
    LinearRegressor,
    MultilabelClassifier,
    OnePassClassifier,
)
from likelier.fitting.extreme_cells import ExtremeCells

N = 120
NAMES = ["age", "income", "height"]
FAST = {
    "linear classifier": lambda: LinearClassifier(random_state=0),
    "linear regressor": lambda: LinearRegressor(random_state=0),
    "one pass": OnePassClassifier,
    "naive bayes": GaussianNB,
    "bayesian linear": lambda: BayesianLinearClassifier(
        inference=MCMC(n_draws=20, n_warmup=20), random_state=0
    ),
    "kernel classifier": lambda: BayesianKernelClassifier(n_components=10, random_state=0),
    "kernel regressor": lambda: BayesianKernelRegressor(n_components=10, random_state=0),
    "svc": SVC,
    "svr": SVR,
}
DEEP = {
    "deep classifier": lambda: DeepGPClassifier(max_iter=2, n_inducing=5, random_state=0),
    "deep regressor": lambda: DeepGPRegressor(max_iter=2, n_inducing=5, random_state=0),
}
ALL = {**FAST, **DEEP, "multilabel": lambda: MultilabelClassifier(random_state=0)}
REFUSE_TINY = ("kernel classifier", "kernel regressor", *DEEP)  # in memory
STREAMS = [name for name in FAST if name not in ("svc", "svr")]
PARTIAL = [name for name in STREAMS if name != "bayesian linear"]

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def draw(n=N, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    return X, (X[:, 0] > 0.0).astype(int)


def targets(name, y):
    return np.column_stack([y, 1 - y]) if name == "multilabel" else y


def with_cell(value, row=7, column=1):
    X, y = draw()
    X[row, column] = value
    return X, y


def told(fit):
    """What a fit warns of extreme cells, or nothing; other warnings are left out."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        fit()
    return [str(w.message) for w in found if issubclass(w.category, UserWarning)
            and " of X: " in str(w.message)]  # fmt: skip


# -- every estimator ----------------------------------------------------------------------------
@pytest.mark.parametrize("name", ALL)
def test_a_damaged_cell_is_told_of_once_with_the_name_of_its_column(name):
    X, y = with_cell(1e8)
    frame = pd.DataFrame(X, columns=NAMES)
    (text,) = told(lambda: ALL[name]().fit(frame, targets(name, y)))
    assert text.startswith("column 'income' of X: a cell as far out as 1e+08 squeezes")
    assert "clip" in text


@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize("value", [1e4, -1e8, 1e30, 1e100])
@pytest.mark.parametrize(("row", "column"), [(0, 0), (N - 1, 2)])
def test_wherever_the_cell_is_and_however_large(name, value, row, column):
    X, y = with_cell(value, row, column)
    (text,) = told(lambda: FAST[name]().fit(X, y))
    assert text.startswith(f"column {column} of X: a cell as far out as {value:.3g} ")


@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize(
    "kind", [sparse.csr_array, sparse.csc_matrix, np.float32, np.asfortranarray]
)
def test_in_every_form_of_rows(name, kind):
    X, y = with_cell(1e8)
    X[X[:, 2] < 0.0, 2] = 0.0
    X = X.astype(kind) if kind is np.float32 else kind(X)
    if name == "naive bayes" and sparse.issparse(X):
        pytest.skip("takes dense rows")
    (text,) = told(lambda: FAST[name]().fit(X, y))
    assert text.startswith("column 1 of X: a cell")


@pytest.mark.parametrize("name", [name for name in FAST if name not in REFUSE_TINY])
@pytest.mark.parametrize("size", [1e-150, 1e-200, 1e-300])
def test_a_column_of_tiny_numbers_is_told_of(name, size):
    X, y = draw()
    X[:, 1] *= size
    frame = pd.DataFrame(X, columns=NAMES)
    (text,) = told(lambda: FAST[name]().fit(frame, y))
    assert text.startswith("column 'income' of X: all values are below")
    assert "rescale" in text


@pytest.mark.parametrize("name", REFUSE_TINY)
def test_kernels_refuse_tiny_numbers_and_do_not_warn_first(name):
    X, y = draw()
    X[:, 1] *= 1e-300
    with pytest.raises(ValueError, match="input 1 of X holds numbers whose squares vanish"):
        ALL[name]().fit(X, y)


@pytest.mark.parametrize("name", FAST)
def test_a_cell_and_a_tiny_column_make_one_warning(name):
    X, y = with_cell(1e8)
    X[:, 2] *= 1e-300 if name not in REFUSE_TINY else 1.0
    (text,) = told(lambda: FAST[name]().fit(X, y))
    assert "column 1 of X: a cell" in text
    assert ("column 2 of X: all values" in text) == (name not in REFUSE_TINY)


@pytest.mark.parametrize("name", FAST)
def test_a_row_of_weight_zero_is_absent(name):
    X, y = with_cell(1e8)
    weight = np.ones(N)
    weight[7] = 0.0
    assert not told(lambda: FAST[name]().fit(X, y, sample_weight=weight))


@pytest.mark.parametrize("name", ALL)
def test_ordinary_rows_are_not_told_of(name):
    X, y = draw()
    rng = np.random.default_rng(1)
    X[:, 1] = rng.lognormal(0.0, 1.0, N)
    X = np.column_stack([X, np.eye(N)[5], np.full(N, 1e8), rng.poisson(0.1, N), 1e9 + X[:, 0]])
    if name == "multilabel":
        X = X[:, :6]
    assert not told(lambda: ALL[name]().fit(X, targets(name, y)))


# -- streams ------------------------------------------------------------------------------------
def blocks(X, y):
    return [(X[start : start + 40], y[start : start + 40]) for start in range(0, N, 40)]


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("once", [False, True])
def test_streams_are_told_of_once(name, once):
    if once and name == "bayesian linear":
        pytest.skip("reads its rows more than once")
    X, y = with_cell(1e8, row=50)
    data = iter(blocks(X, y)) if once else blocks(X, y)
    (text,) = told(lambda: FAST[name]().fit(data))
    assert text.startswith("column 1 of X: a cell as far out as 1e+08")


@pytest.mark.parametrize("name", [name for name in STREAMS if "kernel" not in name])
def test_tiny_columns_of_streams_are_told_of(name):
    X, y = draw()
    X[:, 1] *= 1e-300
    (text,) = told(lambda: FAST[name]().fit(blocks(X, y)))
    assert text.startswith("column 1 of X: all values are below")


@pytest.mark.parametrize("name", STREAMS)
def test_columns_of_a_file_have_names(name, tmp_path):
    X, y = with_cell(1e8)
    path = tmp_path / "rows.csv"
    pd.DataFrame(X, columns=NAMES).assign(sick=y).to_csv(path, index=False)
    (text,) = told(lambda: FAST[name]().fit(path, "sick"))
    assert text.startswith("column 'income' of X: a cell")


@pytest.mark.parametrize("name", PARTIAL)
def test_a_batch_is_told_of_as_it_comes(name):
    X, y = with_cell(1e8, row=50)
    model = FAST[name]()
    found = [told(lambda X=X, y=y: model.partial_fit(X, y)) for X, y in blocks(X, y)]
    assert [len(texts) for texts in found] == [0, 1, 0]


# -- machines whose columns share one scale -----------------------------------------------------
@pytest.mark.parametrize("machine", [SVC, SVR])
def test_a_cell_of_an_empty_column_hides_all_others_from_a_kernel(machine):
    X, y = draw()
    empty = np.zeros(N)
    empty[7] = 1e8
    X = np.column_stack([X, empty])
    (text,) = told(lambda: machine().fit(X, y))
    assert text.startswith("column 3 of X: a cell as far out as 1e+08")
    (text,) = told(lambda: machine().fit(sparse.csr_array(X), y))
    assert text.startswith("column 3 of X: a cell as far out as 1e+08")


@pytest.mark.parametrize("words", [{"gamma": 0.5}, {"gamma": "auto"}, {"kernel": "linear"}])
def test_a_scale_that_no_outlier_changes_loses_nothing(words):
    X, y = draw()
    X[7, 1] = 1e8
    model = SVC(**words)
    assert not told(lambda: model.fit(X, y))
    assert model.score(*draw(seed=1)) > 0.9


def test_a_grid_of_machines_warns_once():
    X, y = with_cell(1e8)
    assert len(told(lambda: SVC().fit_path(X, y, [0.1, 1.0, 10.0]))) == 1


# -- the rule -----------------------------------------------------------------------------------
def columns_of(X):
    found = ExtremeCells.of(X)
    return [j for j, cells in found.cells.items() if cells.dominate(found.n_rows)]


TAILS = {
    "normal": lambda rng, n: rng.standard_normal(n),
    "exponential": lambda rng, n: rng.exponential(size=n),
    "t with 3": lambda rng, n: rng.standard_t(3, n),
    "pareto with 3": lambda rng, n: rng.pareto(3, n),
    "lognormal": lambda rng, n: rng.lognormal(0.0, 1.0, n),
    "counts": lambda rng, n: rng.negative_binomial(0.2, 0.02, n),
    "rare indicator": lambda rng, n: rng.random(n) < 2.0 / n,
    "far from zero": lambda rng, n: 1e9 + rng.standard_normal(n),
    "constant with rounding": lambda rng, n: 1e8 + 1e-8 * (rng.random(n) < 0.1),
    "all the same": lambda rng, n: np.full(n, 3.0),
}


@pytest.mark.parametrize("name", TAILS)
@pytest.mark.parametrize("n", [10, 100, 3000])
def test_ordinary_columns_are_not_extreme(name, n):
    """200 columns; of the heaviest tails one column in 10^5 has such a gap by chance."""
    rng = np.random.default_rng([n, 1])
    X = np.column_stack([TAILS[name](rng, n) for _ in range(200)]).astype(np.float64)
    assert columns_of(X) == []
    assert columns_of(sparse.csr_array(X)) == []


def test_rare_columns_of_sparse_rows_are_not_extreme():
    rng = np.random.default_rng(0)
    X = sparse.random_array((2000, 5000), density=1e-3, rng=rng, format="csr")  # from 0 to 1
    assert columns_of(X) == []


@pytest.mark.parametrize("n", [5, 20, 300, 50_000])
@pytest.mark.parametrize("count", [1, 2, 8])
@pytest.mark.parametrize("shift", [0.0, 1e3])
def test_few_cells_are_found_in_every_form(n, count, shift):
    if count > max(1, n // 20):
        pytest.skip("not a few")
    rng = np.random.default_rng(n)
    X = rng.standard_normal((n, 4)) + shift
    X[rng.permutation(n)[:count], 2] = -1e8
    for rows in (X, np.asfortranarray(X), X.astype(np.float32), sparse.csr_array(X)):
        assert columns_of(rows) == [2]
        assert ExtremeCells.of(rows).cells[2].count == count


@pytest.mark.parametrize("density", [0.01, 0.3, 0.9])
def test_a_cell_among_zeros_is_found(density):
    rng = np.random.default_rng(3)
    X = sparse.random_array((1000, 30), density=density, rng=rng, format="lil")
    X[500, 11] = 1e8
    assert columns_of(X.tocsr()) == columns_of(X.toarray()) == [11]


def test_missing_cells_are_passed_over():
    X, _ = with_cell(1e8)
    X[::3, 1] = np.nan
    X[:, 0] = np.nan
    X[7, 1] = 1e8
    assert columns_of(X) == [1]


@pytest.mark.parametrize("value", [1e200, -1e300, 1.7e308])
def test_squares_that_overflow_are_no_matter(value):
    assert columns_of(with_cell(value)[0]) == [1]


def test_blocks_add_up():
    X, _ = with_cell(1e8, row=50)
    X[100, 1] = -3e8
    X[:, 2] *= 1e-300
    parts = [ExtremeCells.of(X[start : start + 40]) for start in range(0, N, 40)]
    found = parts[0] + parts[1] + parts[2]
    whole = ExtremeCells.of(X)
    assert found.n_rows == N
    assert found.cells[1].count == whole.cells[1].count == 2
    assert found.cells[1].value == whole.cells[1].value == -3e8
    assert found.cells[1].length == pytest.approx(whole.cells[1].length, rel=1e-6)
    np.testing.assert_array_equal(found.tiny & ~found.sized, [False, False, True])


def test_many_rows_learn_in_spite_of_a_cell():
    """What dominates a block need not dominate a long stream."""
    X, _ = with_cell(400.0)
    found = ExtremeCells.of(X)
    assert found.cells[1].dominate(N)
    assert not found.cells[1].dominate(1000 * N)


def test_a_message_names_three_columns():
    X = np.random.default_rng(0).standard_normal((50, 5))
    X[np.arange(5), np.arange(5)] = 1e8
    with pytest.warns(UserWarning, match=r"columns 'a', 'b', 'c' and 2 more of X: 5 cells as far"):
        ExtremeCells.of(X).warn(list("abcde"))

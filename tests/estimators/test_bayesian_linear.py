"""`BayesianLinearClassifier` as its users meet it."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression

import likelier
from likelier.bayesian_linear import sampling as gibbs_run
from likelier.calibration import ece

from .bayesian_linear_problem import bayesian

QUICK = {"n_draws": 60, "n_chains": 2, "random_state": 0}


def rows(n=300, d=4, n_classes=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    scores = 1.5 * X @ rng.standard_normal((d, n_classes))
    codes = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    return X, np.array(["a", "b", "c", "d"])[codes]


@pytest.fixture(scope="module")
def fitted():
    X, y = rows()
    return bayesian(random_state=0).fit(X, y), X, y


def test_shapes_and_agreement_of_the_methods(fitted):
    model, X, _ = fitted
    assert model.coef_draws_.shape == (4, 500, 1, 4)
    assert model.intercept_draws_.shape == (4, 500, 1)
    assert model.prior_precision_draws_.shape == (4, 500, 1)
    assert model.coef_.shape == (1, 4) and model.intercept_.shape == (1,)
    assert model.r_hat_ < 1.05 and model.ess_ > 300 and 0.5 < model.acceptance_ <= 1.0
    p, scores = model.predict_proba(X), model.decision_function(X)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    np.testing.assert_allclose(np.log(p[:, 1] / p[:, 0]), scores, rtol=1e-9)
    np.testing.assert_array_equal(model.predict(X), model.classes_[(scores > 0).astype(int)])
    np.testing.assert_allclose(model.predict_log_proba(X), np.log(p))


def test_probabilities_are_averages_over_the_draws(fitted):
    model, X, _ = fitted
    flat = model.coef_draws_.reshape(-1, 4), model.intercept_draws_.ravel()
    every = np.unique(np.linspace(0, 1999, 500).astype(int))
    each = 1.0 / (1.0 + np.exp(-(X @ flat[0][every].T + flat[1][every])))
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], each.mean(axis=1), rtol=1e-10)
    found = model.predict_uncertainty(X)
    np.testing.assert_allclose(found.total, found.aleatoric + found.epistemic)
    entropy = -(each * np.log(each) + (1 - each) * np.log(1 - each)).mean(axis=1)
    np.testing.assert_allclose(found.aleatoric, entropy, rtol=1e-9)
    # far away the draws disagree more than between the rows, and probabilities are less sure
    far = 1.0 / (1.0 + np.exp(-(20.0 * X @ model.coef_[0] + model.intercept_[0])))
    assert (np.abs(model.predict_proba(20.0 * X)[:, 1] - 0.5) <= np.abs(far - 0.5) + 0.02).all()


def test_intervals_summary_and_arviz(fitted):
    model, _, _ = fitted
    narrow, wide = model.coef_interval(0.5), model.coef_interval(0.95)
    assert narrow.shape == (1, 4, 2)
    assert (wide[..., 0] < narrow[..., 0]).all() and (narrow[..., 1] < wide[..., 1]).all()
    table = model.summary(0.95)
    assert table.name == ["x0", "x1", "x2", "x3", "intercept", "prior_precision"]
    np.testing.assert_allclose(table.mean[:4], model.coef_[0])
    np.testing.assert_allclose(np.stack([table.lower, table.upper], axis=1)[:4], wide[0])
    assert (table.ess > 300).all() and (table.r_hat < 1.05).all()
    assert (table.ess_tail > 300).all() and "ess_tail" in table.to_dict()
    text = str(table)
    assert "intercept" in text and "2.5%" in text and len(text.splitlines()) == 7
    assert len(pd.DataFrame(table.to_dict())) == 6
    with pytest.raises(ValueError, match="level"):
        model.coef_interval(1.5)


@pytest.mark.filterwarnings("ignore")
def test_export_to_arviz(fitted):
    pytest.importorskip("arviz")
    data = fitted[0].to_arviz()
    assert dict(data.posterior.sizes) == {
        "chain": 4, "draw": 500, "output": 1, "feature": 4, "problem": 1
    }  # fmt: skip
    assert data.posterior["output"].values.tolist() == ["b"]


def test_more_data_leave_less_doubt_and_find_the_truth():
    rng = np.random.default_rng(1)
    truth, spreads = np.array([1.0, -0.5, 0.0]), []
    for n in (200, 5000):
        X = rng.standard_normal((n, 3))
        y = rng.random(n) < 1.0 / (1.0 + np.exp(-X @ truth))
        model = bayesian(**QUICK).fit(X, y)
        spreads.append(model.coef_draws_.std(axis=(0, 1)).mean())
    assert spreads[1] < 0.4 * spreads[0]
    assert (np.abs(model.coef_[0] - truth) < 0.15).all()
    reference = LogisticRegression(C=np.inf).fit(X, y)
    np.testing.assert_allclose(model.coef_, reference.coef_, atol=0.04)


def test_units_of_the_features_do_not_matter():
    X, y = rows()
    scale, shift = np.array([1e-6, 1.0, 1e4, 50.0]), np.array([0.0, 1e5, -3.0, 1.0])
    one = bayesian(**QUICK).fit(X, y)
    two = bayesian(**QUICK).fit(X * scale + shift, y)
    np.testing.assert_allclose(two.coef_draws_ * scale, one.coef_draws_, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        two.predict_proba(X * scale + shift), one.predict_proba(X), atol=1e-5
    )


# hidden variables are drawn for every row, so moves that use them (Gibbs, and Hamiltonian ones of
# the hinge) agree with repeated rows in law but not draw by draw
def test_columns_far_from_zero_are_not_taken_for_constant_ones():
    X, y = rows()
    model = bayesian(**QUICK).fit(X, y)
    far = X + np.array([1e9, -3e8, 0.0, 0.0])
    np.testing.assert_allclose(bayesian(**QUICK).fit(far, y).coef_, model.coef_, rtol=1e-4)
    steady = np.column_stack([X, np.full(len(X), 1e9 / 3.0)])
    found = bayesian(**QUICK).fit(steady, y)
    assert abs(found.coef_[0, -1] * 1e9) < 10.0 and found.score(steady, y) > 0.75


@pytest.mark.parametrize("sampler", ["independent", "hamiltonian", "gibbs"])
def test_classes_against_the_rest_are_drawn_independently(sampler):
    X, y = rows(n=150, n_classes=3)
    words = {"sampler": sampler, "n_draws": 200, "n_warmup": 30, "random_state": 0}
    model = bayesian(**words).fit(X, y)
    draws = model.coef_draws_.reshape(-1, 3, 4)
    for j in range(4):  # some 100 effective draws: beyond 0.5 once in 10^5
        between = np.corrcoef(draws[:, :, j].T)[np.triu_indices(3, 1)]
        assert np.abs(between).max() < 0.5


def test_a_refused_fit_leaves_the_model_as_it_was():
    X, y = rows(n=80)
    model = bayesian("hinge", **QUICK).fit(X, y)
    before, state = model.predict_proba(X), dict(vars(model))
    words, far = np.where(y == y[0], "p", "q"), np.where(np.arange(80) < 2, 1e18, 1.0)
    for labels, weight, reason in ((X[:, 0], None, "class"), (words, far, "numerically singular")):
        with pytest.raises(ValueError, match=reason):
            model.fit(X[:, :2], labels, weight)
        assert vars(model).keys() == state.keys()
        assert all(vars(model)[name] is state[name] for name in state)
    np.testing.assert_array_equal(model.predict_proba(X), before)


@pytest.mark.parametrize(
    ("loss", "sampler"),
    [("log_loss", "independent"), ("hinge", "independent"), ("log_loss", "hamiltonian")],
)
def test_weights_are_repetitions_and_absence(loss, sampler):
    X, y = rows(120)
    weight = np.random.default_rng(3).integers(0, 3, 120)
    words = {**QUICK, "n_draws": 25, "n_warmup": 10, "loss": loss, "sampler": sampler}
    words["probability"] = False
    weighted = bayesian(**words).fit(X, y, sample_weight=weight)
    repeated = bayesian(**words).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    np.testing.assert_allclose(weighted.coef_draws_, repeated.coef_draws_, rtol=1e-4, atol=1e-6)
    absent = bayesian(**words).fit(X, y, sample_weight=(weight > 0).astype(float))
    present = bayesian(**words).fit(X[weight > 0], y[weight > 0])
    np.testing.assert_allclose(absent.coef_draws_, present.coef_draws_, rtol=1e-4, atol=1e-6)


def test_class_weights_multiply():
    X, y = rows(200)
    by_class = bayesian(class_weight={"a": 2.0, "b": 0.5}, **QUICK).fit(X, y)
    by_row = bayesian(**QUICK).fit(X, y, sample_weight=np.where(y == "a", 2.0, 0.5))
    np.testing.assert_array_equal(by_class.coef_draws_, by_row.coef_draws_)
    bayesian(class_weight="balanced", **QUICK).fit(X, y)


@pytest.mark.parametrize(
    ("kind", "loss"), [(np.float64, "log_loss"), (np.float32, "log_loss"), (np.float64, "softmax")]
)
def test_dense_sparse_frames_and_several_classes(kind, loss):
    X, y = rows(240, n_classes=3, seed=2)
    X[np.abs(X) < 0.4] = 0.0
    X = X.astype(kind)
    names = ["u", "v", "w", "x"]
    words = {**QUICK, "loss": loss}
    plain = bayesian(**words).fit(X, y)
    assert plain.coef_.shape == (3, 4)
    assert plain.score(X, y) > 0.6
    p = plain.predict_proba(X)
    np.testing.assert_array_equal(plain.predict(X), plain.classes_[p.argmax(axis=1)])
    np.testing.assert_array_equal(plain.decision_function(X).argmax(axis=1), p.argmax(axis=1))
    inputs = (sparse.csr_array(X), pd.DataFrame(X, columns=names), pl.DataFrame(X, schema=names))
    for other in inputs:
        model = bayesian(**words).fit(other, y)
        near = 1e-3 if kind is np.float32 else 1e-6
        np.testing.assert_allclose(model.predict_proba(other), p, atol=near)
    assert "a: u" in bayesian(**words).fit(inputs[1], y).summary().name
    assert plain.predict_uncertainty(X).epistemic.min() >= 0.0


def test_given_priors():
    X, y = rows(100)
    strong = bayesian(prior_precision=1e6, prior_mean=[1.0, 0.0, 0.0, -2.0], **QUICK)
    strong.fit(X, y)
    np.testing.assert_allclose(strong.coef_, [[1.0, 0.0, 0.0, -2.0]], atol=0.01)
    assert strong.prior_precision_draws_.shape == (2, 60, 0)
    assert strong.summary().name[-1] == "intercept"
    each = bayesian(prior_precision=[1e6, 1.0, 1.0, 1.0], **QUICK).fit(X, y)
    assert abs(each.coef_[0, 0]) < 0.01 < abs(each.coef_[0, 1:]).max()
    none = bayesian(fit_intercept=False, **QUICK).fit(X, y)
    assert none.intercept_ == 0.0 and "intercept" not in none.summary().name


def test_hinge_is_calibrated_and_agrees_with_itself():
    X, y = rows(800)
    model = bayesian("hinge", **QUICK).fit(X, y)
    p = model.predict_proba(X)
    np.testing.assert_array_equal(model.predict(X), model.classes_[p.argmax(axis=1)])
    assert ece(p, (y == "b").astype(int)) < 0.06
    assert (model.predict_uncertainty(X).total > 0.0).all()
    three, labels = rows(300, n_classes=3)
    several = bayesian("hinge", **QUICK).fit(three, labels)
    np.testing.assert_array_equal(
        several.predict(three), several.classes_[several.predict_proba(three).argmax(axis=1)]
    )
    bare = bayesian("hinge", probability=False, **QUICK).fit(X, y)
    assert bare.score(X, y) > 0.8
    with pytest.raises(AttributeError) as caught:
        bare.predict_proba(X)
    assert "probability=False" in str(caught.value.__cause__)


def test_few_and_separable_rows():
    """Where the Gaussian fits badly gradients take over; nothing warns, nothing is infinite."""
    X, y = np.array([[-1.0], [-0.5], [0.5], [1.0]]), np.array([0, 0, 1, 1])
    model = bayesian(random_state=0).fit(X, y)
    assert np.isfinite(model.coef_draws_).all() and model.coef_[0, 0] > 0.0
    rng = np.random.default_rng(4)
    wide = rng.standard_normal((30, 60))
    labels = wide[:, 0] > 0
    model = bayesian(random_state=0, prior_precision=0.05).fit(wide, labels)
    assert model.sampler_ == "hamiltonian"
    assert model.r_hat_ < 1.05
    constant = np.column_stack([X, np.ones(4), np.zeros(4)])
    assert np.isfinite(bayesian(**QUICK).fit(constant, y).coef_).all()


def test_proposals_that_miss_the_tails_are_given_up():
    """On these rows independent draws agree (R-hat 1.00) on spreads that are a fifth too small."""
    X, y = load_wine(return_X_y=True)
    model = bayesian(random_state=1).fit(X, y == 1)
    assert model.sampler_ == "hamiltonian"
    plain, labels = rows(600)
    assert bayesian(random_state=1).fit(plain, labels).sampler_ == "independent"


def test_a_learned_scale_mixes_where_features_outnumber_separable_rows():
    """Gaussians of the evidence are far from the posterior there; warm-up moves them to it."""
    rng = np.random.default_rng([100, 120, 1])
    X = rng.normal(size=(100, 120))
    y = X[:, 0] + 0.3 * rng.normal(size=100) > 0.0
    model = bayesian(random_state=0).fit(X, y)
    assert model.sampler_ == "hamiltonian"
    assert model.r_hat_ < 1.05 and model.ess_ > 100.0


@pytest.mark.parametrize(
    "words", [{}, {"loss": "hinge"}, {"loss": "softmax"}], ids=["ovr", "hinge", "joint"]
)
@pytest.mark.parametrize("K", [2, 3])
def test_total_uncertainty_is_the_entropy_of_the_probabilities(words, K):
    rng = np.random.default_rng(K)
    X = rng.standard_normal((120, 3))
    y = np.argmax(X[:, :K] + rng.gumbel(size=(120, K)), axis=1)
    model = bayesian(**words, **QUICK).fit(X, y)
    p, found = model.predict_proba(X), model.predict_uncertainty(X)
    np.testing.assert_allclose(found.total, -(p * np.log(p)).sum(axis=1), atol=1e-9)
    np.testing.assert_allclose(found.total, found.aleatoric + found.epistemic)
    assert (found.epistemic >= 0.0).all() and found.epistemic.mean() > 0.0


def test_samplers_agree_and_warmup_and_thinning_are_counted():
    X, y = rows(150)
    means = []
    for sampler in ("independent", "hamiltonian", "gibbs"):
        model = bayesian(sampler=sampler, n_draws=100, n_warmup=40, thin=2, random_state=1)
        model.fit(X, y)
        assert model.coef_draws_.shape == (4, 100, 1, 4)
        assert model.sampler_ == sampler
        means.append(model.coef_)
    sd = model.coef_draws_.std(axis=(0, 1))
    assert (np.abs(means[0] - means[1]) < 0.3 * sd).all()
    assert (np.abs(means[0] - means[2]) < 0.3 * sd).all()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_independent_moves_that_fail_are_given_up(monkeypatch):
    """A proposal that looks fine and is not must be found out by its chains."""
    monkeypatch.setattr(gibbs_run, "MIN_PILOT_EFFICIENCY", 0.0)
    rng = np.random.default_rng(5)
    X = rng.standard_normal((40, 80))
    words = {"n_draws": 100, "prior_precision": 0.01, "n_warmup": 20}
    model = bayesian(random_state=0, **words)
    model.fit(X, X[:, 0] > 0)
    assert model.sampler_ == "hamiltonian"


def test_same_seed_same_bits_and_threads(fitted):
    model, X, y = fitted
    again = clone(model).set_params(n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(again.coef_draws_, model.coef_draws_)
    other = clone(model).set_params(random_state=1).fit(X, y)
    assert not np.array_equal(other.coef_draws_, model.coef_draws_)


def test_saving(fitted, tmp_path):
    model, X, _ = fitted
    likelier.save(model, tmp_path / "m")
    loaded = likelier.load(tmp_path / "m")
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    assert str(loaded.summary()) == str(model.summary())
    unpickled = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(unpickled.predict(X), model.predict(X))


def interrupt(monkeypatch, step):
    """Stop sampling at the keyboard in the given step of any class."""
    original, calls = gibbs_run.Sampling.advanced, []

    def advanced(self, engine):
        calls.append(1)
        if len(calls) == step:
            raise KeyboardInterrupt
        return original(self, engine)

    monkeypatch.setattr(gibbs_run.Sampling, "advanced", advanced)
    return calls


@pytest.mark.parametrize("step", [1, 12])
def test_an_interruption_leaves_the_model_as_it_was(step, monkeypatch):
    X, y = rows(80)
    fresh = bayesian(n_draws=2000, random_state=0)
    model = clone(fresh).fit(X, y)
    before = dict(vars(model))
    calls = interrupt(monkeypatch, step)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X[:, :2], np.where(y == y[0], "p", "q"))
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[name] is before[name] for name in before)
    calls.clear()
    with pytest.raises(KeyboardInterrupt):
        fresh.fit(X, y)
    with pytest.raises(NotFittedError):
        fresh.predict(X)


@pytest.mark.parametrize("step", [2, 20])
def test_a_checkpoint_holds_the_draws_of_an_interrupted_fit(step, monkeypatch, tmp_path):
    X, y = rows(200, n_classes=3)
    model = bayesian(n_draws=300, random_state=0)
    whole = clone(model).fit(X, y)
    model.set_params(checkpoint=tmp_path / "fits")
    calls = interrupt(monkeypatch, step)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert len(calls) == step
    model.fit(X, y)
    assert len(calls) - step < 3 * whole.n_iter_ - (step - 3)  # no step is made twice
    for name in ("coef_draws_", "intercept_draws_", "prior_precision_draws_", "n_iter_", "ess_"):
        np.testing.assert_array_equal(getattr(model, name), getattr(whole, name))


class Watcher:
    """Sees rounds, and may end the fit."""

    def __init__(self, stop_after=None):
        self.stop_after, self.n_rounds, self.scores = stop_after, 0, []

    def setup(self, estimator, context): ...

    def teardown(self, estimator, context): ...

    def on_fit_task_begin(self, estimator, context, **data): ...

    def on_fit_task_end(self, estimator, context, *, X=None, y=None, fitted_estimator=None):
        if context.task_name != "round":
            return False
        self.n_rounds += 1
        if fitted_estimator is not None:
            self.scores.append(fitted_estimator.score(X, y))
        return self.n_rounds == self.stop_after


@pytest.mark.parametrize("loss", ["log_loss", "hinge"])
def test_callbacks_see_every_round_and_may_end_the_fit(loss):
    X, y = rows(200, n_classes=3)
    watcher = Watcher()
    model = bayesian(loss, **QUICK).set_callbacks(watcher).fit(X, y)
    assert watcher.n_rounds == model.n_iter_
    assert 0 < len(watcher.scores) < model.n_iter_  # not before there are draws
    assert watcher.scores[-1] == model.score(X, y) > 0.6
    early = Watcher(stop_after=1)
    words = {**QUICK, "sampler": "gibbs", "n_warmup": 5, "n_draws": 200}
    model = bayesian(loss, **words).set_callbacks(early).fit(X, y)
    assert model.coef_draws_.shape[1] == 4  # the fewest that it ends with
    assert model.predict_proba(X).shape == (200, 3)


def test_streams_and_paths(tmp_path, capsys):
    X, y = rows(300)
    frame = pd.DataFrame(X, columns=list("pqrs")).assign(label=y)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    model = bayesian(verbose=1, **QUICK).fit(tmp_path / "rows.csv", y="label")
    assert "100% done" in capsys.readouterr().out
    assert model.feature_names_in_.tolist() == list("pqrs")
    memory = bayesian(**QUICK).fit(frame[list("pqrs")], y)
    np.testing.assert_allclose(model.coef_, memory.coef_, rtol=1e-5)
    hinge = bayesian("hinge", **QUICK).fit(tmp_path / "rows.csv", y="label")
    assert hinge.predict_proba(frame[list("pqrs")]).shape == (300, 2)
    with pytest.raises(ValueError, match="read only once"):
        bayesian().fit(iter([(X, y)]))
    with pytest.raises(ValueError, match="sample_weight"):
        bayesian().fit(tmp_path / "rows.csv", "label", np.ones(300))


@pytest.mark.parametrize(
    ("words", "error", "says"),
    [
        ({"loss": "squared"}, ValueError, "loss"),
        ({"sampler": "nuts"}, ValueError, r"inference\.sampler must be one of"),
        ({"n_draws": 0}, ValueError, "n_draws"),
        ({"n_chains": 1.5}, TypeError, "n_chains"),
        ({"n_warmup": -1}, ValueError, "n_warmup"),
        ({"thin": True}, TypeError, "thin"),
        ({"prior_precision": "big"}, ValueError, "prior_precision"),
        ({"prior_precision": 0.0}, ValueError, "prior_precision"),
        ({"prior_precision": [1.0, 2.0]}, ValueError, "prior_precision"),
        ({"prior_mean": np.nan}, ValueError, "prior_mean"),
        ({"prior_mean": "zero"}, TypeError, "prior_mean"),
        ({"class_weight": {"z": 1.0}}, ValueError, "class_weight"),
    ],
)
def test_bad_words_are_named(words, error, says):
    X, y = rows(40)
    with pytest.raises(error, match=says):
        bayesian(**words).fit(X, y)


def test_bad_data_are_named():
    X, y = rows(40)
    with pytest.raises(ValueError, match="class"):
        bayesian().fit(X, X[:, 0])
    with pytest.raises(ValueError, match="NaN"):
        bayesian().fit(np.where(X > 2.0, np.nan, X), y)
    with pytest.raises(ValueError, match="column 1 .*rescale"):
        bayesian().fit(X * np.where(np.arange(X.shape[1]) == 1, 1e200, 1.0), y)
    with pytest.raises(ValueError, match="requires y"):
        bayesian().fit(X)
    with pytest.raises(NotFittedError):
        bayesian().predict(X)
    with pytest.raises(ValueError, match="max 3000"):
        bayesian().fit(sparse.random_array((20, 5000), format="csr", rng=0), y[:20])


def test_chains_that_disagree_warn():
    rng = np.random.default_rng(6)
    X = rng.standard_normal((3000, 5))
    y = np.zeros(3000)
    y[:4] = 1
    model = bayesian(sampler="gibbs", n_draws=100, n_warmup=0, random_state=0)
    with pytest.warns(ConvergenceWarning, match="chains disagree"):
        model.fit(X, y)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_hinge_is_calibrated_on_real_data(data_set):
    """Mean calibration error at most 0.02 on four data sets, judged on rows left out."""
    errors = []
    for name in ("a9a", "ijcnn1", "spambase", "phishing"):
        data = data_set(name)
        codes = np.unique(data.y, return_inverse=True)[1]
        order = np.random.default_rng(0).permutation(len(codes))
        train, test = order[:3000], order[3000:23000]
        if len(test) < 2000:
            train, test = order[:2600], order[2600:]
        model = bayesian("hinge", random_state=0, n_draws=200)
        model.fit(data.X[train], codes[train])
        errors.append(ece(model.predict_proba(data.X[test]), codes[test]))
    assert np.mean(errors) <= 0.02

"""`MultilabelClassifier` interrupted: Ctrl-C ends the fit, and completed parts are kept."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import likelier
from likelier import MultilabelClassifier
from likelier.multilabel import recipe as multilabel_fit
from likelier.multilabel.label_mixture import LabelMixture
from likelier.multilabel.variational import VariationalMixture

RNG = np.random.default_rng(0)
X = RNG.normal(size=(150, 4))
Y = (X @ RNG.normal(size=(4, 3)) + RNG.logistic(size=(150, 3)) > 0).astype(float)


def model():
    return MultilabelClassifier(kernel=False, n_components=4, n_folds=3, random_state=0)


def interrupt(monkeypatch, where, name, at):
    """Let the call number ``at`` be interrupted; returns the list of calls."""
    real, calls = getattr(where, name), []

    def stubborn(*arguments, **params):
        calls.append(1)
        if len(calls) == at:
            raise KeyboardInterrupt
        return real(*arguments, **params)

    monkeypatch.setattr(where, name, stubborn)
    return calls


@pytest.fixture(scope="module")
def n_steps():
    """Passes of all mixtures, and those of the last one."""
    patch = pytest.MonkeyPatch()
    calls = interrupt(patch, VariationalMixture, "step", -1)
    fitted = model().fit(X, Y)
    patch.undo()
    return len(calls), len(fitted.elbo_)


@pytest.mark.parametrize("place", ["first", "second", "folds", "first of the last"])
def test_without_a_validated_mixture_the_classifiers_are_kept(
    place, monkeypatch, n_steps, tmp_path
):
    total, last = n_steps
    at = {"first": 1, "second": 2, "folds": total - last, "first of the last": total - last + 1}
    calls = interrupt(monkeypatch, VariationalMixture, "step", at[place])
    with pytest.warns(ConvergenceWarning, match=r"1 feature map.* no mixture"):
        fitted = model().fit(X, Y)
    assert len(calls) == at[place]  # it ended there
    assert fitted.interrupted_ and fitted.mixture_ is None and fitted.label_patterns_ == []
    assert (fitted.predict(X) == Y).mean() > 0.65
    likelier.save(fitted, tmp_path / "m")
    assert likelier.load(tmp_path / "m").interrupted_


def test_the_last_mixture_is_kept_as_far_as_it_came(monkeypatch, n_steps):
    total, last = n_steps
    assert last > 2
    interrupt(monkeypatch, VariationalMixture, "step", total - last + 3)
    with pytest.warns(ConvergenceWarning, match="and a mixture"):
        fitted = model().fit(X, Y)
    assert fitted.interrupted_ and len(fitted.elbo_) == 2 and fitted.mixture_ is not None
    assert np.isfinite(fitted.predict_proba(X)).all()


def test_the_short_last_part_is_finished(monkeypatch):
    whole = model().fit(X, Y)
    interrupt(monkeypatch, multilabel_fit, "choose_thresholds", 1)
    with pytest.warns(ConvergenceWarning, match="fit was interrupted"):
        fitted = model().fit(X, Y)
    assert fitted.interrupted_ and not whole.interrupted_
    assert fitted.predict_proba(X).tobytes() == whole.predict_proba(X).tobytes()


def test_with_nothing_done_there_is_nothing_to_keep(monkeypatch):
    interrupt(monkeypatch, multilabel_fit, "fit_map", 1)
    with pytest.raises(KeyboardInterrupt):
        model().fit(X, Y)


def test_folds_do_not_swallow_an_interruption(monkeypatch):
    interrupt(monkeypatch, VariationalMixture, "step", 3)
    settings = LabelMixture(3, "gaussian", "bernoulli", _engine, VariationalMixture(), 10, 1.0)
    with pytest.raises(KeyboardInterrupt):
        settings.out_of_fold(X, Y, np.ones(len(X)), np.arange(len(X)) % 3)


def _engine(X, Y, weight):
    return likelier.engines.LocalEngine(X, Y, weight)

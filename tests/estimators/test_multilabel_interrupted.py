"""`MultilabelClassifier` interrupted: Ctrl-C keeps the earlier model, and a checkpoint the work."""

import warnings

import numpy as np
import pytest

from likelier.engines import LocalEngine
from likelier.multilabel import recipe
from likelier.multilabel.label_mixture import LabelMixture
from likelier.multilabel.variational import VariationalMixture

from .multilabel_problem import multilabel

RNG = np.random.default_rng(0)
X = RNG.normal(size=(150, 4))
Y = (X @ RNG.normal(size=(4, 3)) + RNG.logistic(size=(150, 3)) > 0).astype(float)
PLACES = {
    "first map": (recipe, "fit_map", 1),
    "second map": (recipe, "fit_map", 2),
    "first pass": (VariationalMixture, "step", 1),
    "later pass": (VariationalMixture, "step", 20),
    "thresholds": (recipe, "choose_thresholds", 1),
}


def model(**params):
    return multilabel(n_components=4, n_folds=3, random_state=0, **params)


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


@pytest.mark.parametrize("place", PLACES)
def test_an_interrupted_refit_keeps_the_earlier_model(place, monkeypatch):
    fitted = model().fit(X, Y)
    before, attributes = fitted.predict_proba(X), dict(vars(fitted))
    interrupt(monkeypatch, *PLACES[place])
    with pytest.raises(KeyboardInterrupt):
        fitted.fit(X[:, :3], Y[:, :2])
    assert vars(fitted) == attributes
    assert fitted.predict_proba(X).tobytes() == before.tobytes()


@pytest.mark.parametrize("learn", ["fit", "partial_fit"])
def test_an_interrupted_first_fit_leaves_no_model(learn, monkeypatch):
    interrupt(monkeypatch, recipe, "choose_thresholds", 1)
    fresh = model(kernel=False)
    with pytest.raises(KeyboardInterrupt):
        getattr(fresh, learn)(X, Y)
    assert vars(fresh) == vars(model(kernel=False))


@pytest.mark.parametrize("place", PLACES)
def test_with_a_checkpoint_an_interrupted_fit_goes_on(place, monkeypatch, tmp_path):
    whole = model().fit(X, Y).predict_proba(X)
    with monkeypatch.context() as patch:
        interrupt(patch, *PLACES[place])
        with pytest.raises(KeyboardInterrupt):
            model(checkpoint=tmp_path).fit(X, Y)
    calls = interrupt(monkeypatch, recipe, "fit_map", -1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        resumed = model(checkpoint=tmp_path).fit(X, Y)
    assert resumed.predict_proba(X).tobytes() == whole.tobytes()
    n_maps = len(resumed.maps_)
    assert len(calls) == {"first map": n_maps, "second map": n_maps - 1}.get(place, 0)
    assert not list(tmp_path.iterdir())


def test_folds_do_not_swallow_an_interruption(monkeypatch):
    interrupt(monkeypatch, VariationalMixture, "step", 3)
    settings = LabelMixture(3, "gaussian", "bernoulli", LocalEngine, VariationalMixture(), 10, 1.0)
    with pytest.raises(KeyboardInterrupt):
        settings.out_of_fold(X, Y, np.ones(len(X)), np.arange(len(X)) % 3)

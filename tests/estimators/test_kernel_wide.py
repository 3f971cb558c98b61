"""Kernel classifiers of few rows and many inputs, where scales could overfit."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import make_classification
from sklearn.metrics import log_loss

from likelier import BayesianKernelClassifier


def test_random_labels_give_weak_predictions() -> None:
    """An uninformed model has log loss 0.69; overfitted scales have twice that."""
    losses = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(420, 300)), rng.integers(0, 2, 420)
        model = BayesianKernelClassifier(random_state=0).fit(X[:120], y[:120])
        losses.append(log_loss(y[120:], model.predict_proba(X[120:])))
    assert np.mean(losses) < 0.78
    assert max(losses) < 0.85


def test_few_telling_inputs_among_many_are_found_and_trusted_no_more_than_due() -> None:
    losses, hits = [], []
    for seed in range(4):
        X, y = make_classification(600, 300, n_informative=10, n_redundant=0, random_state=seed)
        model = BayesianKernelClassifier(random_state=0).fit(X[:120], y[:120])
        losses.append(log_loss(y[120:], model.predict_proba(X[120:])))
        hits.append(model.score(X[120:], y[120:]))
    assert np.mean(losses) < 0.55
    assert np.mean(hits) > 0.75

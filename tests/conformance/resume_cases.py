"""Fits that are killed and resumed: every route and stage that a checkpoint can be in."""

from __future__ import annotations

import numpy as np
from scipy import sparse

import likelier
from likelier.kernel_machine.settings import Evidence
from likelier.kernel_machine.stein_gaussian import SteinGaussian
from likelier.kernel_machine.svgd import SVGD


def dense(n=1500, d=6, k=2):
    """Rows and classes."""
    rng = np.random.default_rng(d)
    X = rng.standard_normal((n, d))
    score = X @ rng.standard_normal((d, k)) + 0.5 * rng.standard_normal((n, k))
    return X, score.argmax(axis=1)


def numbers(n=3000, d=6):
    """Rows and continuous targets."""
    X, _ = dense(n, d)
    rng = np.random.default_rng(1)
    return X, X @ rng.standard_normal(d) + 0.5 * rng.standard_normal(n)


def wide(n=1500, d=2500):
    """Sparse rows and classes."""
    rng = np.random.default_rng(0)
    X = sparse.random_array((n, d), density=0.01, format="csr", rng=rng)
    return X, (X @ rng.standard_normal(d) > 0.0).astype(int)


def separable(n=30, d=60):
    """Fewer rows than features, and classes that a plane tells apart."""
    X = np.random.default_rng(4).standard_normal((n, d))
    return X, (X[:, 0] > 0.0).astype(int)


def stream():
    """Blocks of rows, read as often as needed."""
    X, y = dense(5000, k=3)
    return ([(X[:700], y[:700]), (X[700:], y[700:])],)


def labels(n=150, sparse_rows=False):
    """Rows, a third of them without labels, and a matrix of labels."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((n, 4))
    Y = (X @ rng.standard_normal((4, 3)) + rng.logistic(size=(n, 3)) > 0.0).astype(float)
    Y[: n // 3] = np.nan
    return (sparse.csr_array(np.abs(X) > 0.7, dtype=float) if sparse_rows else X), Y


def blocks():
    """Few rows and classes in blocks."""
    X, y = dense(150, 3)
    return ([(X[:70], y[:70]), (X[70:], y[70:])],)


def by_class():
    """Rows sorted by class."""
    X, y = dense(20_000, k=3)
    order = np.argsort(y, kind="stable")
    return X[order], y[order]


def wide_stream():
    """Blocks of sparse rows."""
    X, y = wide(d=3500)
    return ([(X[:700], y[:700]), (X[700:], y[700:])],)


quick = {"random_state": 0}
short = likelier.PowerEP(n_samples=2, n_draws=4, batch_size=64)
deep = {"n_inducing": 10, "max_iter": 60, "inference": short, **quick}


def long_stream():
    """More sparse rows than are held in memory, and few for each feature."""
    X, y = wide(20_400, 420)
    return ([(X[:9000], y[:9000]), (X[9000:], y[9000:])],)


def long_numbers():
    """More rows than scales are learned from."""
    X, y = numbers(24_000, 3)
    return ([(X[:9000], y[:9000]), (X[9000:], y[9000:])],)


kernel = {"n_components": 64, **quick}


def bayesian(loss="log_loss", prior_precision="auto", **sampling):
    """With few draws, unless more are asked for."""
    inference = likelier.MCMC(**{"n_chains": 2, "n_draws": 12, **sampling})
    return likelier.BayesianLinearClassifier(
        loss, prior_precision=prior_precision, inference=inference, **quick
    )


CASES = {
    "gaussian_nb": (likelier.GaussianNB(**quick), dense),
    "bernoulli_nb_stream": (likelier.BernoulliNB(**quick), stream),
    "one_pass": (likelier.OnePassClassifier(**quick), by_class),
    "one_pass_stream": (
        likelier.OnePassClassifier(features="fourier", n_components=40, half_life=3000, **quick),
        stream,
    ),
    "one_pass_frozen": (likelier.OnePassClassifier(update="frozen", **quick), lambda: dense(k=3)),
    "one_pass_frozen_stream": (likelier.OnePassClassifier(update="frozen", **quick), stream),
    "linear_newton": (likelier.LinearClassifier(alpha=1e-3, **quick), lambda: dense(5000, k=3)),
    "linear_newton_stream": (likelier.LinearClassifier(alpha=1e-3, **quick), stream),
    "linear_lbfgs": (likelier.LinearClassifier(alpha=1e-6, tol=1e-12, **quick), wide),
    "linear_l1": (
        likelier.LinearClassifier(alpha=1e-4, l1_ratio=1.0, tol=1e-10, **quick),
        wide,
    ),
    "linear_sgd_stream": (likelier.LinearClassifier("hinge", max_iter=6, **quick), wide_stream),
    "linear_schedule": (
        likelier.LinearClassifier(
            solver=likelier.SGD(learning_rate="invscaling", average=2000), max_iter=6, **quick
        ),
        lambda: dense(k=3),
    ),
    "linear_folds": (likelier.LinearRegressor(**quick), lambda: numbers(60, 20)),
    "svc_two": (likelier.SVC(probability=True, **quick), lambda: dense(900)),
    "svc_pairs": (likelier.SVC(probability=True, **quick), lambda: dense(900, k=3)),
    "svc_small_pairs": (likelier.SVC(**quick), lambda: dense(400, k=5)),
    "svr": (likelier.SVR(C=10.0, probability=True, **quick), lambda: numbers(900)),
    "linear_calibrated": (likelier.LinearClassifier("squared_hinge", **quick), dense),
    "multilabel": (
        likelier.MultilabelClassifier(
            mixture=likelier.Mixture(3, max_iter=3), n_folds=2, kernel=False, **quick
        ),
        labels,
    ),
    "multilabel_batches": (
        likelier.MultilabelClassifier(
            mixture=likelier.Mixture(3, feature_temperature=0.5, batch_size=64, max_iter=2),
            n_folds=2,
            combine="product",
            **quick,
        ),
        lambda: labels(sparse_rows=True),
    ),
    "multilabel_classes": (
        likelier.MultilabelClassifier(
            mixture=likelier.Mixture(3, feature_temperature=0.5, max_iter=3),
            n_folds=2,
            kernel=False,
            **quick,
        ),
        lambda: dense(150, k=3),
    ),
    "deep_gp_choices": (likelier.DeepGPClassifier(**deep), lambda: dense(60, 3)),
    "deep_gp_stream": (
        likelier.DeepGPClassifier(class_weight="balanced", **deep).set_params(
            inference__early_stopping=True, kernel__length_scales="long"
        ),
        blocks,
    ),
    "deep_gp_power": (
        likelier.DeepGPRegressor(n_inducing=4, max_iter=40, **quick),
        lambda: numbers(3000, 3),
    ),
    "kernel_classes": (likelier.BayesianKernelClassifier(**kernel), lambda: dense(1200, k=3)),
    "kernel_numbers": (likelier.BayesianKernelRegressor(**kernel), lambda: numbers(1200)),
    "kernel_few_rows": (likelier.BayesianKernelClassifier(**kernel), lambda: dense(70, 9)),
    "kernel_hinge": (likelier.BayesianKernelClassifier(loss="hinge", **kernel), dense),
    "kernel_epsilon": (
        likelier.BayesianKernelRegressor(loss="epsilon_insensitive", **kernel),
        lambda: numbers(300),
    ),
    "kernel_experts": (
        likelier.BayesianKernelClassifier(
            inference=Evidence(n_experts=16), gamma=0.5, alpha=0.1, **kernel
        ),
        lambda: dense(900, 2),
    ),
    "kernel_experts_numbers": (
        likelier.BayesianKernelRegressor(
            inference=Evidence(n_experts=16), gamma=0.5, alpha=0.1, **kernel
        ),
        lambda: numbers(900, 2),
    ),
    "kernel_svgd": (
        likelier.BayesianKernelClassifier(
            loss="hinge", inference=SVGD(n_particles=4, n_updates=30), **kernel
        ),
        lambda: dense(300, k=3),
    ),
    "kernel_stein": (
        likelier.BayesianKernelRegressor(
            inference=SteinGaussian(n_particles=2, n_updates=30), **kernel
        ),
        lambda: numbers(300),
    ),
    "kernel_stream": (likelier.BayesianKernelClassifier(**kernel), stream),
    "kernel_long_stream": (likelier.BayesianKernelRegressor(**kernel), long_numbers),
    "bayesian_auto": (bayesian(), lambda: dense(k=3)),
    "bayesian_few_rows": (
        bayesian(prior_precision=0.05, n_warmup=12),
        separable,
    ),
    "bayesian_switched": (
        bayesian(n_chains=8, n_draws=52, n_warmup=5),
        lambda: dense(40, 4),
    ),
    "bayesian_refitted": (
        bayesian(sampler="hamiltonian", n_warmup=45),
        lambda: dense(300),
    ),
    "bayesian_gibbs_stream": (
        bayesian("softmax", sampler="gibbs", n_warmup=12),
        stream,
    ),
    "bayesian_folds": (
        bayesian("hinge", thin=2),
        lambda: dense(100),
    ),
    "bayesian_folds_stream": (
        bayesian("hinge", sampler="independent"),
        stream,
    ),
    "bayesian_long_stream": (
        bayesian("hinge", sampler="gibbs", n_warmup=2),
        long_stream,
    ),
}

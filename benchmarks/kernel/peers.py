"""Other classifiers on the same rows: boosted trees, random features with SGD, a sparse GP."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.kernel.problem import Split

N_FEATURES, N_INDUCING = 1000, 128
GP_BATCH, GP_EPOCHS, GP_RATE, GP_LEAST_STEPS = 256, 15, 0.02, 300
GP_SECONDS = 45.0  # limit of the processor time for training


def boosting(split: Split, seed: int) -> tuple[Any, float]:
    """HistGradientBoosting with its defaults."""
    start = time.process_time()
    model = HistGradientBoostingClassifier(random_state=seed).fit(split.X, split.y)
    fitted = time.process_time() - start
    return model.predict_proba(split.X_test), fitted


def lightgbm(split: Split, seed: int) -> tuple[Any, float]:
    """LightGBM with its defaults, one thread."""
    from lightgbm import LGBMClassifier

    start = time.process_time()
    model = LGBMClassifier(random_state=seed, n_jobs=1, verbose=-1).fit(split.X, split.y)
    fitted = time.process_time() - start
    return model.predict_proba(split.X_test), fitted


def sampler(split: Split, seed: int) -> tuple[Any, float]:
    """RBFSampler with 1,000 features and SGD on log loss, otherwise defaults."""
    start = time.process_time()
    model = make_pipeline(
        StandardScaler(),
        RBFSampler(gamma="scale", n_components=N_FEATURES, random_state=seed),
        SGDClassifier(loss="log_loss", random_state=seed),
    ).fit(split.X, split.y)
    fitted = time.process_time() - start
    return model.predict_proba(split.X_test), fitted


def sparse_gp(split: Split, seed: int) -> tuple[Any, float]:
    """GPyTorch: variational GP with ARD and 128 inducing points, softmax or Bernoulli."""
    import gpytorch
    import torch

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    start = time.process_time()
    scaler = StandardScaler().fit(split.X)
    X = torch.tensor(scaler.transform(split.X), dtype=torch.float32)
    n_classes, d = int(split.y.max()) + 1, X.shape[1]
    y = torch.tensor(split.y)
    rng = np.random.default_rng(seed)
    model = _variational_gp(X[rng.permutation(len(X))[:N_INDUCING]], n_classes, d)
    if n_classes == 2:
        likelihood = gpytorch.likelihoods.BernoulliLikelihood()
        y = y.float()
    else:
        likelihood = gpytorch.likelihoods.SoftmaxLikelihood(
            num_classes=n_classes, mixing_weights=False
        )
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(X))
    optimiser = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=GP_RATE)
    for _ in range(max(GP_EPOCHS * len(X) // GP_BATCH, GP_LEAST_STEPS)):
        if time.process_time() - start > GP_SECONDS:
            break
        rows = torch.from_numpy(rng.integers(len(X), size=min(GP_BATCH, len(X))))
        optimiser.zero_grad()
        loss = -bound(model(X[rows]), y[rows])
        loss.backward()
        optimiser.step()
    fitted = time.process_time() - start
    model.eval()
    likelihood.eval()
    parts = []
    test = torch.tensor(scaler.transform(split.X_test), dtype=torch.float32)
    with torch.no_grad(), gpytorch.settings.num_likelihood_samples(64):
        for rows in torch.split(test, 1000):
            parts.append(likelihood(model(rows)).probs.numpy())
    if n_classes == 2:
        p = np.concatenate(parts)
        return np.stack([1.0 - p, p], axis=1), fitted
    return np.concatenate([p.mean(axis=0) for p in parts]), fitted


def _variational_gp(inducing: Any, n_classes: int, d: int) -> Any:
    import gpytorch
    import torch

    shape = torch.Size([]) if n_classes == 2 else torch.Size([n_classes])

    class Process(gpytorch.models.ApproximateGP):
        def __init__(self) -> None:
            law = gpytorch.variational.CholeskyVariationalDistribution(
                len(inducing), batch_shape=shape
            )
            strategy = gpytorch.variational.VariationalStrategy(self, inducing, law)
            if n_classes > 2:
                strategy = gpytorch.variational.IndependentMultitaskVariationalStrategy(
                    strategy, num_tasks=n_classes
                )
            super().__init__(strategy)
            self.mean = gpytorch.means.ConstantMean(batch_shape=shape)
            kernel = gpytorch.kernels.RBFKernel(ard_num_dims=d)
            kernel.lengthscale = float(np.sqrt(d))
            self.kernel = gpytorch.kernels.ScaleKernel(kernel, batch_shape=shape)

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    return Process()


PEERS = {"boosting": boosting, "lightgbm": lightgbm, "sampler": sampler, "sparse-gp": sparse_gp}
NAMES = {
    "boosting": "HistGradientBoosting", "lightgbm": "LightGBM",
    "sampler": "RBFSampler + SGD", "sparse-gp": "sparse GP (GPyTorch)",
}  # fmt: skip

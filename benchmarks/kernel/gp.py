"""Gaussian processes of GPyTorch on the regression splits: exact for few rows, sparse for many.

Both have an RBF kernel with one length scale per input, on standardised inputs and targets, and are
trained by Adam for a fixed number of steps or processor time.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from benchmarks.common import remember
from benchmarks.kernel.problem import Split, number_split

EXACT_ROWS = 2000  # largest exact process
EXACT_STEPS, EXACT_RATE = 150, 0.1
SPARSE_EPOCHS, SPARSE_RATE, BATCH, N_INDUCING = 100, 0.01, 512, 256
MOST_SECONDS = 60.0


def run(folder: Path, sets: Iterable[str], n_splits: int | None = None) -> None:
    """Measure the missing splits: the given number, or three for few rows and one otherwise."""
    for name in sets:
        few = len(number_split(name, 0).y) <= EXACT_ROWS
        for index in range(n_splits or (3 if few else 1)):
            record = remember(folder / "gp.json", f"{name}/{index}", partial(measure, name, index))
            print(
                f"{name} split {index} {record['kind']} GP: rmse {record['rmse']:.4g}", flush=True
            )


def measure(name: str, index: int) -> dict[str, Any]:
    """Error, log density and coverage of the exact or sparse process."""
    split = number_split(name, index)
    with threadpool_limits(1):
        return fitted(split, index)


def fitted(split: Split, seed: int) -> dict[str, Any]:
    """Train on a split and evaluate on its test part."""
    import torch

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    start = time.process_time()
    inputs, centre, spread = StandardScaler().fit(split.X), split.y.mean(), split.y.std()
    X = torch.tensor(inputs.transform(split.X), dtype=torch.float32)
    y = torch.tensor((split.y - centre) / spread, dtype=torch.float32)
    exact = len(y) <= EXACT_ROWS
    train = _train_exact if exact else train_sparse
    model, likelihood, n_steps = train(X, y, seed, start + MOST_SECONDS)
    cpu = time.process_time() - start
    mean, variance = predict(model, likelihood, inputs.transform(split.X_test))
    mean, std = centre + spread * mean, spread * np.sqrt(variance)
    z = (split.y_test - mean) / std
    return {
        "rows": len(y), "kind": "exact" if exact else "sparse", "steps": n_steps, "cpu": cpu,
        "rmse": float(np.sqrt(np.mean((split.y_test - mean) ** 2))),
        "log_density": float(np.mean(-0.5 * z**2 - np.log(std) - 0.5 * np.log(2.0 * np.pi))),
        "coverage": float(np.mean(np.abs(z) <= 1.6448536)),
    }  # fmt: skip


def _train_exact(X: Any, y: Any, seed: int, until: float) -> tuple[Any, Any, int]:
    import gpytorch
    import torch

    class Process(gpytorch.models.ExactGP):
        def __init__(self, likelihood: Any) -> None:
            super().__init__(X, y, likelihood)
            self.mean, self.kernel = gpytorch.means.ConstantMean(), _kernel(X.shape[1])

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Process(likelihood)
    bound = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    optimiser = torch.optim.Adam(model.parameters(), lr=EXACT_RATE)
    step = 0
    while step < EXACT_STEPS and time.process_time() < until:
        optimiser.zero_grad()
        (-bound(model(X), y)).backward()
        optimiser.step()
        step += 1
    return model, likelihood, step


def train_sparse(
    X: Any, y: Any, seed: int, until: float, n_inducing: int = N_INDUCING, batch: int = BATCH,
    epochs: int = SPARSE_EPOCHS,
) -> tuple[Any, Any, int]:  # fmt: skip
    """Model, likelihood and number of steps of a sparse process trained within its time limit."""
    import gpytorch
    import torch

    rng = np.random.default_rng(seed)
    inducing = X[rng.permutation(len(X))[:n_inducing]].clone()

    class Process(gpytorch.models.ApproximateGP):
        def __init__(self) -> None:
            law = gpytorch.variational.CholeskyVariationalDistribution(len(inducing))
            super().__init__(gpytorch.variational.VariationalStrategy(self, inducing, law))
            self.mean, self.kernel = gpytorch.means.ConstantMean(), _kernel(X.shape[1])

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    model, likelihood = Process(), gpytorch.likelihoods.GaussianLikelihood()
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))
    optimiser = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=SPARSE_RATE)
    step, most = 0, epochs * len(y) // batch
    while step < most and time.process_time() < until:
        rows = torch.from_numpy(rng.integers(len(y), size=batch))
        optimiser.zero_grad()
        (-bound(model(X[rows]), y[rows])).backward()
        optimiser.step()
        step += 1
    return model, likelihood, step


def _kernel(d: int) -> Any:
    import gpytorch

    kernel = gpytorch.kernels.RBFKernel(ard_num_dims=d)
    kernel.lengthscale = float(np.sqrt(d))
    return gpytorch.kernels.ScaleKernel(kernel)


def predict(model: Any, likelihood: Any, X_test: Any) -> tuple[Any, Any]:
    """Means and variances of new targets."""
    import gpytorch
    import torch

    model.eval()
    likelihood.eval()
    means, variances = [], []
    with torch.no_grad(), gpytorch.settings.fast_pred_var(False):
        for rows in torch.split(torch.tensor(X_test, dtype=torch.float32), 1000):
            found = likelihood(model(rows))
            means.append(found.mean.numpy().astype(np.float64))
            variances.append(found.variance.numpy().astype(np.float64))
    return np.concatenate(means), np.concatenate(variances)

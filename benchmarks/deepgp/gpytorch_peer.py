"""GPyTorch's deep process, written as its own documentation does, an exact and a sparse one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import gpytorch
import numpy as np
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.means import ConstantMean, LinearMean
from gpytorch.mlls import DeepApproximateMLL, VariationalELBO
from gpytorch.models.deep_gps import DeepGP, DeepGPLayer
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy

from benchmarks.datasets import Array
from benchmarks.kernel.gp import predict, train_sparse

# Subnormal numbers are nothing here but slow, by a tenth; JAX does without them as well.
torch.set_flush_denormal(True)
NO_END = 10**9  # epochs: the time ends the training


class _Layer(DeepGPLayer):
    def __init__(self, inputs: int, outputs: int | None, n_inducing: int, inner: bool) -> None:
        batch = torch.Size([]) if outputs is None else torch.Size([outputs])
        points = torch.randn(*batch, n_inducing, inputs)
        law = CholeskyVariationalDistribution(n_inducing, batch_shape=batch)
        strategy = VariationalStrategy(self, points, law, learn_inducing_locations=True)
        super().__init__(strategy, inputs, outputs)
        self.mean_module = LinearMean(inputs) if inner else ConstantMean()
        self.covar_module = ScaleKernel(
            RBFKernel(batch_shape=batch, ard_num_dims=inputs), batch_shape=batch
        )

    def forward(self, x: Any) -> MultivariateNormal:
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


class TwoLayers(DeepGP):
    """Two layers with a Gaussian likelihood."""

    def __init__(self, inputs: int, hidden: int, n_inducing: int) -> None:
        super().__init__()
        self.hidden = _Layer(inputs, hidden, n_inducing, inner=True)
        self.last = _Layer(hidden, None, n_inducing, inner=False)
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood()

    def forward(self, x: Any) -> Any:
        return self.last(self.hidden(x))


class Trainer:
    """Adam on the variational bound; `step` is one minibatch."""

    def __init__(self, X: Array, y: Array, n_inducing: int, batch: int, dtype: str) -> None:
        kind = torch.float64 if dtype == "float64" else torch.float32
        torch.set_default_dtype(kind)
        torch.manual_seed(0)
        self.X, self.y = torch.tensor(X, dtype=kind), torch.tensor(y, dtype=kind)
        self.model = TwoLayers(X.shape[1], min(X.shape[1], 30), n_inducing)
        self.bound = DeepApproximateMLL(VariationalELBO(self.model.likelihood, self.model, len(y)))
        self.adam = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.batch, self.rng = batch, np.random.default_rng(0)

    def step(self) -> float:
        """One minibatch with ten samples."""
        rows = self.rng.integers(0, len(self.y), self.batch)
        with gpytorch.settings.num_likelihood_samples(10):
            self.adam.zero_grad()
            loss = -self.bound(self.model(self.X[rows]), self.y[rows])
            loss.backward()
            self.adam.step()
        return float(loss.detach())

    def log_density(self, X: Array, y: Array, n_samples: int = 100) -> Array:
        """Log density of a mixture over samples."""
        self.model.eval()
        out = []
        for start in range(0, len(y), 1000):
            rows = torch.tensor(X[start : start + 1000], dtype=self.X.dtype)
            targets = torch.tensor(y[start : start + 1000], dtype=self.X.dtype)
            with torch.no_grad(), gpytorch.settings.num_likelihood_samples(n_samples):
                law = self.model.likelihood(self.model(rows))
                each = torch.distributions.Normal(law.mean, law.variance.sqrt()).log_prob(targets)
                out.append((each.logsumexp(0) - math.log(n_samples)).numpy())
        self.model.train()
        return np.concatenate(out)


def exact_gp_log_density(
    X: Array, y: Array, test: tuple[Array, Array], steps: int, most_rows: int
) -> Array:
    """Exact GP with ARD on some of the rows, its evidence climbed by Adam."""
    torch.set_default_dtype(torch.float64)
    rows = np.random.default_rng(0).permutation(len(y))[:most_rows]
    train_X, train_y = torch.tensor(X[rows]), torch.tensor(y[rows])

    class Exact(gpytorch.models.ExactGP):
        def __init__(self) -> None:
            super().__init__(train_X, train_y, gpytorch.likelihoods.GaussianLikelihood())
            self.mean_module = ConstantMean()
            self.covar_module = ScaleKernel(RBFKernel(ard_num_dims=X.shape[1]))

        def forward(self, x: Any) -> MultivariateNormal:
            return MultivariateNormal(self.mean_module(x), self.covar_module(x))

    model = Exact()
    evidence = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    adam = torch.optim.Adam(model.parameters(), lr=0.1)
    # by Cholesky factors at any size: conjugate gradients, its own choice beyond 800 rows, end far
    # from the solution where there is hardly any noise
    with gpytorch.settings.max_cholesky_size(most_rows + 1):
        for _ in range(steps):
            adam.zero_grad()
            loss = -evidence(model(train_X), train_y)
            loss.backward()
            adam.step()
        model.eval()
        with torch.no_grad():
            law = model.likelihood(model(torch.tensor(test[0])))
            normal = torch.distributions.Normal(law.mean, law.variance.sqrt())
            return normal.log_prob(torch.tensor(test[1])).numpy()


def sparse_gp(
    data: tuple[Array, Array], seed: int, until: float, n_inducing: int, batch: int
) -> tuple[Callable[[Array, Array], Array], int]:
    """Log density of a sparse GP trained until this processor time, and its minibatches."""
    torch.set_default_dtype(torch.float32)
    torch.manual_seed(seed)
    X, y = (torch.tensor(part, dtype=torch.float32) for part in data)
    model, likelihood, n_steps = train_sparse(X, y, seed, until, n_inducing, batch, NO_END)

    def log_density(X_test: Array, y_test: Array) -> Array:
        mean, variance = predict(model, likelihood, X_test)
        return -0.5 * ((y_test - mean) ** 2 / variance + np.log(2.0 * np.pi * variance))

    return log_density, n_steps

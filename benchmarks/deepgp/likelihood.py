"""Time and error of the argmax likelihood: value, derivatives, all classes at once.

The peer is what JAX itself offers: ``jax.scipy.special.log_ndtr`` at Gauss-Hermite nodes, in log
space, differentiated automatically.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.common import Cases, interleave, markdown_table, seconds_text

SHAPE = (10, 256)  # samples, rows
CLASSES = (3, 10, 30, 100, 300, 1000)
HERMITE_NODES = 20
# more nodes than anyone needs, and an interval wide enough for rounding
REFERENCE = (400, 34.0, 20.0)


def run(classes: Sequence[int] = CLASSES, repeats: int = 7, known: Container[str] = ()) -> Cases:
    """Processor times and errors for every number of classes and both dtypes but the known."""
    import jax

    with jax.enable_x64(True):
        for dtype in ("float64", "float32"):
            for n_classes in classes:
                if (key := f"{dtype} {n_classes}") not in known:
                    yield key, _case(dtype, n_classes, repeats)


def _case(dtype: str, n_classes: int, repeats: int) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp

    from likelier.deep_gp import argmax as quadrature
    from likelier.deep_gp.argmax_grid import FAST, PRECISE, Rule

    y, *moments = _scores(n_classes)
    mean, var = (jnp.asarray(x, dtype) for x in moments)

    def one(rule: Rule) -> Callable[..., Any]:
        return lambda m, v: quadrature.log_z_argmax(y, m, v, rule)

    functions = {
        "precise": one(PRECISE),
        "fast": one(FAST),
        "hermite": lambda m, v: _hermite(y, m, v),
    }
    runs = {}
    for name, function in functions.items():
        runs[f"{name} value"] = jax.jit(function)
        runs[f"{name} slopes"] = jax.jit(
            jax.value_and_grad(lambda m, v, f=function: f(m, v).sum(), (0, 1))
        )
    runs["all classes"] = jax.jit(quadrature.argmax_probabilities)
    for function in runs.values():  # compile
        jax.block_until_ready(function(mean, var))
    timings, _ = interleave(
        {name: lambda _, f=f: jax.block_until_ready(f(mean, var)) for name, f in runs.items()},
        repeats,
    )
    exact = jax.jit(one(Rule(*REFERENCE)))(mean.astype("float64"), var.astype("float64"))
    errors = {
        name: float(jnp.abs(runs[f"{name} value"](mean, var) - exact).max()) for name in functions
    }
    whole = quadrature.argmax_probabilities(mean, var, normalise=False)
    errors["sum of all classes"] = float(jnp.abs(whole.sum(-1) - 1.0).max())
    seconds = {name: timing.to_json()["cpu_seconds"] for name, timing in timings.items()}
    return {"seconds": seconds, "errors": errors, "rows": math.prod(SHAPE)}


def _scores(n_classes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores as a deep Gaussian process gives them: variances over four decades."""
    rng = np.random.default_rng(n_classes)
    var = 10.0 ** rng.uniform(-2, 2, (*SHAPE, n_classes))
    mean = 2.0 * rng.normal(size=var.shape)
    return rng.integers(0, n_classes, SHAPE[1]), mean, var


def _hermite(y: Any, mean: Any, var: Any) -> Any:
    """The document's rule, with nodes and weights paired and in log space."""
    import jax
    import jax.numpy as jnp
    from jax.scipy.special import log_ndtr, logsumexp

    nodes, weights = np.polynomial.hermite.hermgauss(HERMITE_NODES)
    own = jax.nn.one_hot(y, mean.shape[-1], dtype=mean.dtype)
    mean_y, var_y = (own * mean).sum(-1), (own * var).sum(-1)
    h = mean_y[..., None] + jnp.sqrt(2.0 * var_y)[..., None] * jnp.asarray(nodes, mean.dtype)
    z = (h[..., None] - mean[..., None, :]) / jnp.sqrt(var)[..., None, :]
    logs = (log_ndtr(z) * (1.0 - own)[..., None, :]).sum(-1)
    log_weights = jnp.asarray(np.log(weights), mean.dtype)
    return logsumexp(logs + log_weights, axis=-1) - 0.5 * math.log(math.pi)


def tables(results: Mapping[str, Mapping[str, Any]]) -> str:
    """The part of the page that these results make."""
    header = [
        "dtype, classes",
        "fast: value",
        "with slopes",
        "precise: value",
        "with slopes",
        "Hermite: value",
        "with slopes",
        "all classes",
        "error fast",
        "error precise",
        "error Hermite",
        "sum - 1",
    ]
    rows = []
    for key, result in results.items():
        seconds, errors = result["seconds"], result["errors"]
        names = [
            f"{n} {part}" for n in ("fast", "precise", "hermite") for part in ("value", "slopes")
        ]
        rows.append(
            [key, *(seconds_text(seconds[name]) for name in [*names, "all classes"])]
            + [
                f"{errors[name]:.0e}"
                for name in ("fast", "precise", "hermite", "sum of all classes")
            ]
        )
    return (
        "## Likelihood of the class with the largest score\n\n"
        f"Argmax likelihood of {math.prod(SHAPE):,} rows (samples times rows), processor time of"
        " one call; largest error of log p; variances between 0.01 and 100. Hermite:"
        f" {HERMITE_NODES} nodes with JAX's own `log_ndtr` and automatic derivatives.\n\n"
        + markdown_table(header, rows)
        + "\n"
    )

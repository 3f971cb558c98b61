"""Summaries of posterior draws: credible intervals, a table of diagnostics, export to ArviZ."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from likelier.base import Array
from likelier.bayesian_linear.diagnostics import effective_size, r_hat, tail_effective_size
from likelier.fitting.parameters import check_within


@dataclass(frozen=True)
class DrawsSummary:
    """Summary statistics per parameter, as arrays of equal length; prints as a table."""

    name: list[str]
    mean: Array
    sd: Array
    lower: Array
    upper: Array
    ess: Array
    ess_tail: Array
    r_hat: Array
    level: float

    def to_dict(self) -> dict[str, Any]:
        """Columns by name, suited to ``pandas.DataFrame``."""
        columns = ("name", "mean", "sd", "lower", "upper", "ess", "ess_tail", "r_hat")
        return {column: getattr(self, column) for column in columns}

    def __str__(self) -> str:
        width = max([len("parameter"), *map(len, self.name)])
        ends = f"{50 * (1 - self.level):.3g}%", f"{50 * (1 + self.level):.3g}%"
        lines = [
            f"{'parameter':{width}} {'mean':>10} {'sd':>10} {ends[0]:>10} {ends[1]:>10} "
            f"{'ess':>7} {'ess_tail':>8} {'r_hat':>6}"
        ]
        statistics = zip(self.mean, self.sd, self.lower, self.upper, strict=True)
        diagnostics = zip(self.ess, self.ess_tail, self.r_hat, strict=True)
        for name, four, (ess, tail, ratio) in zip(self.name, statistics, diagnostics, strict=True):
            cells = " ".join(f"{value:10.4g}" for value in four)
            lines.append(f"{name:{width}} {cells} {ess:7.0f} {tail:8.0f} {ratio:6.3f}")
        return "\n".join(lines)


class SummaryMixin:
    """Mixin of methods that use the draws only."""

    coef_draws_: Array
    intercept_draws_: Array
    prior_precision_draws_: Array
    classes_: Array
    fit_intercept: bool

    def coef_interval(self, level: float = 0.95) -> Array:
        """Central credible interval of each weight, of posterior probability ``level``.

        Returns an array of shape (n_outputs, n_features, 2): lower and upper end.
        """
        check_is_fitted(self, "coef_draws_")
        check_within("level", level, 0.0, 1.0, strict=True)
        ends = [0.5 - 0.5 * level, 0.5 + 0.5 * level]
        return np.moveaxis(np.quantile(self.coef_draws_, ends, axis=(0, 1)), 0, -1)

    def summary(self, level: float = 0.95) -> DrawsSummary:
        """Mean, standard deviation, interval, effective sample sizes and R-hat per parameter.

        ``ess`` is the bulk effective sample size, ``ess_tail`` that for the ends of the 90%
        interval. ``print`` it, or use ``pandas.DataFrame(model.summary().to_dict())``.
        """
        check_is_fitted(self, "coef_draws_")
        check_within("level", level, 0.0, 1.0, strict=True)
        names, draws = self._parameters()
        ends = [0.5 - 0.5 * level, 0.5 + 0.5 * level]
        lower, upper = np.quantile(draws, ends, axis=(0, 1))
        flat = draws.reshape(-1, draws.shape[2])
        sd = flat.std(axis=0, ddof=1) if len(flat) > 1 else np.zeros(flat.shape[1])
        return DrawsSummary(
            names, flat.mean(axis=0), sd, lower, upper, effective_size(draws),
            tail_effective_size(draws), r_hat(draws), level,
        )  # fmt: skip

    def to_arviz(self) -> Any:
        """Draws as ``arviz.InferenceData`` with named dimensions; requires the package arviz.

        From version 1 on arviz returns an ``xarray.DataTree``, with the same group "posterior".
        """
        try:
            import arviz  # optional dependency
        except ImportError:
            raise ImportError("to_arviz requires arviz; pip install arviz") from None
        check_is_fitted(self, "coef_draws_")
        posterior = {"coef": self.coef_draws_}
        dims = {"coef": ["output", "feature"]}
        if self.fit_intercept:
            posterior["intercept"], dims["intercept"] = self.intercept_draws_, ["output"]
        if self.prior_precision_draws_.shape[2]:
            posterior["prior_precision"] = self.prior_precision_draws_
            dims["prior_precision"] = ["problem"]
        coords = {"feature": self._feature_names(), "output": self._output_names()}
        if "posterior" in signature(arviz.from_dict).parameters:  # before version 1
            return arviz.from_dict(posterior=posterior, dims=dims, coords=coords)
        return arviz.from_dict({"posterior": posterior}, dims=dims, coords=coords)

    def _parameters(self) -> tuple[list[str], Array]:
        """Names of all parameters, and their draws (chains, draws, parameters)."""
        chains, n, outputs, _ = self.coef_draws_.shape
        features, several = self._feature_names(), outputs > 1
        names, parts = [], []
        for k, label in enumerate(self._output_names()):
            prefix = f"{label}: " if several else ""
            names += [f"{prefix}{feature}" for feature in features]
            parts.append(self.coef_draws_[:, :, k])
            if self.fit_intercept:
                names.append(f"{prefix}intercept")
                parts.append(self.intercept_draws_[:, :, k, None])
        problems = self.prior_precision_draws_.shape[2]
        for k in range(problems):
            names.append("prior_precision" if problems == 1 else f"prior_precision[{k}]")
        parts.append(self.prior_precision_draws_)
        return names, np.concatenate(parts, axis=2).reshape(chains, n, -1)

    def _feature_names(self) -> list[str]:
        known = getattr(self, "feature_names_in_", None)
        d = self.coef_draws_.shape[3]
        return [f"x{j}" for j in range(d)] if known is None else [str(name) for name in known]

    def _output_names(self) -> list[str]:
        labels = [str(label) for label in self.classes_]
        return labels if self.coef_draws_.shape[2] > 1 else labels[1:]

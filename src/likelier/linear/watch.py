"""What happens after every iteration of a fit: callbacks, progress, validation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from likelier.base import Array, Batch, Info
from likelier.glm.route import Solution
from likelier.linear.problem import Problem

NO_CHANGE = 5  # iterations without a better validation loss before early stopping stops


class Watch:
    """After every iteration: callbacks, progress on request, and the validation loss."""

    def __init__(
        self, estimator: Any, problem: Problem, validation: Batch | None, data: Any,
        quiet: bool,
    ) -> None:  # fmt: skip
        self.estimator, self.problem, self.validation = estimator, problem, validation
        self.data, self.quiet = data, quiet
        self.latest: Callable[[], Array] | None = None
        self.info = Info()
        self.best: tuple[float, Array] | None = None
        self.n_iter = self.waited = 0
        self.stopped = False

    def __call__(self, theta: Callable[[], Array], info: Info) -> bool:
        self.latest, self.info = theta, info
        self.n_iter += 1
        if self.quiet:
            return False
        if self.estimator.verbose:
            print(f"iteration {self.n_iter}: objective {info.objective:.6g}, gap {info.gap:.2g}")
        self.stopped = self._call_back() or self._validate()
        return self.stopped

    def _call_back(self) -> bool:
        context = getattr(self.estimator, "_callback_fit_ctx", None)
        if context is None or not getattr(self.estimator, "_skl_callbacks", None):
            return False
        X, y = self.data
        sub = context.subcontext(task_name="iteration")
        sub.call_on_fit_task_begin(estimator=self.estimator, X=X, y=y)
        return bool(
            sub.call_on_fit_task_end(
                estimator=self.estimator, X=X, y=y, reconstruction_attributes=self._attributes()
            )
        )

    def _attributes(self) -> dict[str, Any]:
        assert self.latest is not None
        fitted = self.estimator._fitted(self.problem, self.latest())
        return {**fitted, "n_iter_": self.n_iter}

    def _validate(self) -> bool:
        """Early stopping: no better validation loss for some iterations."""
        if self.validation is None:
            return False
        assert self.latest is not None
        theta = self.latest()
        loss = self.problem.model.stats(theta, self.validation).value.sum()
        loss = float(loss) / self.validation.n_rows
        tol = 0.0 if self.estimator.tol is None else self.estimator.tol
        if self.best is None or loss < self.best[0] - tol * abs(self.best[0]):
            self.best, self.waited = (loss, theta), 0
        else:
            self.waited += 1
        return self.waited >= NO_CHANGE

    def with_best(self, solution: Solution) -> Solution:
        """The solution at the best validation loss."""
        assert self.best is not None
        return Solution(
            self.best[1], solution.n_iter, solution.objective, solution.gap, True, solution.route
        )

    def interrupted(self) -> Solution:
        """What had been learned when the keyboard stopped the fit."""
        assert self.latest is not None
        info = self.info
        return Solution(self.latest(), self.n_iter, info.objective, info.gap, False, "interrupted")

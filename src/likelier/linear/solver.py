"""How linear models are fitted: by the cheapest route to the optimum, or by stochastic passes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from likelier.value import Value, flag, integer, make_value, number, one_of


@dataclass(frozen=True)
class Solver(Value):
    """The ``solver`` of linear models; ``stochastic`` where only stochastic passes will do."""

    kind: ClassVar[str] = "solver"
    stochastic: ClassVar[bool] = False

    @property
    def sgd(self) -> SGD:
        """How stochastic passes are made, by whichever solver."""
        return SGD()


@dataclass(frozen=True)
class Auto(Solver):
    """The cheapest route that reaches the optimum."""

    name: ClassVar[str] = "auto"

    def set_params(self, **params: Any) -> Self:
        """Raise for any parameter: they are those of `SGD`."""
        if params:
            name = next(iter(params))
            raise ValueError(
                f'solver="auto" has no parameter {name!r}; set solver="sgd" first, whose '
                f"parameters are {sorted(SGD().get_params())}"
            )
        return self


@dataclass(frozen=True)
class SGD(Solver):
    """Stochastic gradient descent, as ``solver=SGD(...)`` of linear models.

    Parameters
    ----------
    update : {"implicit", "explicit"}, default="implicit"
        Implicit (proximal) steps are stable at every rate; explicit ones are ordinary SGD.
    learning_rate : {"auto", "constant", "invscaling"}, default="auto"
        "auto": a rate per feature times a global one, chosen among eight on a sample; "constant":
        ``eta0``; "invscaling": ``eta0 / sqrt(t)``. The last two leave features as they are.
    eta0 : float, default=0.01
        Rate of "constant" and "invscaling"; "auto" does not use it.
    average : bool or int, default=True
        Predict with the mean of the iterates, without those of the first ``average`` rows; with
        ``learning_rate="auto"`` it is always the mean, with weights that grow like ``k^3``.
    shuffle : bool, default=True
        Visit rows in random order.
    early_stopping : bool, default=False
        Hold out rows, stop when their loss has not improved for five passes, and keep the
        coefficients of the best pass. For rows in memory.
    validation_fraction : float, default=0.1
        Fraction of the rows that is held out.
    """

    name: ClassVar[str] = "sgd"
    stochastic: ClassVar[bool] = True
    update: str = one_of("implicit", "explicit")
    learning_rate: str = one_of("auto", "constant", "invscaling")
    eta0: float = number(0.01, "(0, inf)")
    average: bool | int = integer(True, "[0, inf)", True, False)
    shuffle: bool = flag(True)
    early_stopping: bool = flag(False)
    validation_fraction: float = number(0.1, "(0, 1)")

    @property
    def sgd(self) -> SGD:
        """These settings."""
        return self


def make_solver(solver: Any) -> Solver:
    """Return a solver from a solver or its name."""
    return make_value(solver, Solver, {"auto": Auto, "sgd": SGD})

"""How the weights of a kernel machine are found: values of its ``inference`` parameter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from likelier.value import Value, integer, make_value, number


@dataclass(frozen=True)
class KernelInference(Value):
    """A way to find scales and weights.

    Parameters
    ----------
    temperature : float
        The data count as N / temperature observations.
    """

    kind: ClassVar[str] = "inference"

    temperature: float = number(1.0, "(0, inf)")


@dataclass(frozen=True)
class Evidence(KernelInference):
    """Scales by the evidence, prior by validation, a Gaussian posterior of the weights.

    Parameters
    ----------
    temperature : float
        The data count as N / temperature observations.
    posterior_scale : float or "auto"
        Factor of the posterior covariance in the predictions of a classifier; 1 is the Gaussian
        posterior, "auto" minimises the held-out log loss. Out of support the full prior variance
        applies unless it is 0.
    n_experts : int or "auto"
        Number of local models that correct the global one, rounded down to a power of two (0
        disables them). "auto": one per 1,024 rows, at most 512, from 20,000 rows on (8,192 in a
        regression), if this lowers the held-out loss.
    max_iter : int
        Maximum number of steps for weights without a closed form; three times as many for a hinge.
    tol : float
        These stop when a step is expected to decrease the objective by less than this fraction; a
        hinge when the objective is certified to be within this fraction of the optimum.
    """

    name: ClassVar[str] = "evidence"

    posterior_scale: float | str = number("auto", "[0, inf)", "auto")
    n_experts: int | str = integer("auto", "[0, inf)", "auto")
    max_iter: int = integer(100, "[1, inf)")
    tol: float = number(1e-3, "(0, inf)")


def make_inference(inference: Any) -> KernelInference:
    """The value of an ``inference`` parameter."""
    return make_value(
        inference,
        KernelInference,
        {"evidence": Evidence, "svgd": _svgd, "stein_gaussian": _stein_gaussian},
    )


def _svgd() -> KernelInference:
    from likelier.kernel_machine.svgd import SVGD

    return SVGD()


def _stein_gaussian() -> KernelInference:
    from likelier.kernel_machine.stein_gaussian import SteinGaussian

    return SteinGaussian()

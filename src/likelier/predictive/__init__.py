"""Predictive: what is known about the target of each row, as a mixture of simple laws.

A posterior turns rows into one weighted mixture per row: of categorical or Bernoulli laws
for classes, of independent Bernoulli laws for sets of labels, of Gaussian or Student-t laws for
numbers, of Poisson laws for counts. A point estimate is a mixture of one, draws are a mixture
with equal weights; a stack or an ensemble is a mixture whose components are predictives.
Probabilities, intervals, quantiles, uncertainty and log densities of every estimator are
computed here and nowhere else.

Shapes: ``n`` rows, ``M`` components, ``K`` classes. Component arrays have shape ``(n, M)``
(categorical: ``(n, M, K)``); without the ``M`` axis they are a mixture of one. Weights have
shape ``(M,)``, the same for all rows, or ``(n, M)``; they need not sum to one.
"""

from likelier.predictive.classes import Bernoulli, Categorical, ClassPredictive
from likelier.predictive.counts import Counts
from likelier.predictive.label_sets import LabelSets
from likelier.predictive.location_scale import Gaussian, LocationScale, StudentT
from likelier.predictive.mixed import MixedClasses, MixedNumbers
from likelier.predictive.mixture import Predictive
from likelier.predictive.numbers import NumberPredictive
from likelier.predictive.posterior import MixedPosterior

__all__ = [
    "Bernoulli",
    "Categorical",
    "ClassPredictive",
    "Counts",
    "Gaussian",
    "LabelSets",
    "LocationScale",
    "MixedClasses",
    "MixedNumbers",
    "MixedPosterior",
    "NumberPredictive",
    "Predictive",
    "StudentT",
]

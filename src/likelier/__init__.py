"""likelier: classification and regression that says how sure it is.

Public names are imported when first used, so that ``import likelier`` itself is cheap and
loads no optional package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from likelier import kernels, losses
    from likelier.bayesian_linear.classifier import BayesianLinearClassifier
    from likelier.bayesian_linear.settings import MCMC
    from likelier.deep_gp.classifier import DeepGPClassifier
    from likelier.deep_gp.regressor import DeepGPRegressor
    from likelier.deep_gp.settings import ARD, PowerEP
    from likelier.features.transformer import FourierFeatures, NystroemFeatures
    from likelier.kernel_machine.classifier import BayesianKernelClassifier
    from likelier.kernel_machine.regressor import BayesianKernelRegressor
    from likelier.kernel_machine.settings import Evidence
    from likelier.kernel_machine.stein_gaussian import SteinGaussian
    from likelier.kernel_machine.svgd import SVGD
    from likelier.linear.classifier import LinearClassifier
    from likelier.linear.regressor import LinearRegressor
    from likelier.linear.solver import SGD
    from likelier.multilabel.classifier import MultilabelClassifier
    from likelier.multilabel.settings import Mixture
    from likelier.naive_bayes.counts import BernoulliNB, MultinomialNB
    from likelier.naive_bayes.gaussian import GaussianNB
    from likelier.one_pass.classifier import OnePassClassifier
    from likelier.registry import load, load_predictor, save
    from likelier.svm.classifier import SVC
    from likelier.svm.regressor import SVR
    from likelier.tables.transformer import TableFeatures
    from likelier.text.transformer import TextFeatures

__version__ = "0.1.0"

__all__ = [
    "ARD",
    "MCMC",
    "SGD",
    "SVC",
    "SVGD",
    "SVR",
    "BayesianKernelClassifier",
    "BayesianKernelRegressor",
    "BayesianLinearClassifier",
    "BernoulliNB",
    "DeepGPClassifier",
    "DeepGPRegressor",
    "Evidence",
    "FourierFeatures",
    "GaussianNB",
    "LinearClassifier",
    "LinearRegressor",
    "Mixture",
    "MultilabelClassifier",
    "MultinomialNB",
    "NystroemFeatures",
    "OnePassClassifier",
    "PowerEP",
    "SteinGaussian",
    "TableFeatures",
    "TextFeatures",
    "__version__",
    "kernels",
    "load",
    "load_predictor",
    "losses",
    "save",
]

# Where each public name lives; a public module is listed under its own name.
_HOME = {
    "ARD": "likelier.deep_gp.settings",
    "MCMC": "likelier.bayesian_linear.settings",
    "SGD": "likelier.linear.solver",
    "SVC": "likelier.svm.classifier",
    "SVR": "likelier.svm.regressor",
    "BayesianKernelClassifier": "likelier.kernel_machine.classifier",
    "BayesianKernelRegressor": "likelier.kernel_machine.regressor",
    "Evidence": "likelier.kernel_machine.settings",
    "SVGD": "likelier.kernel_machine.svgd",
    "SteinGaussian": "likelier.kernel_machine.stein_gaussian",
    "BayesianLinearClassifier": "likelier.bayesian_linear.classifier",
    "BernoulliNB": "likelier.naive_bayes.counts",
    "DeepGPClassifier": "likelier.deep_gp.classifier",
    "DeepGPRegressor": "likelier.deep_gp.regressor",
    "FourierFeatures": "likelier.features.transformer",
    "GaussianNB": "likelier.naive_bayes.gaussian",
    "LinearClassifier": "likelier.linear.classifier",
    "LinearRegressor": "likelier.linear.regressor",
    "Mixture": "likelier.multilabel.settings",
    "MultilabelClassifier": "likelier.multilabel.classifier",
    "MultinomialNB": "likelier.naive_bayes.counts",
    "NystroemFeatures": "likelier.features.transformer",
    "OnePassClassifier": "likelier.one_pass.classifier",
    "PowerEP": "likelier.deep_gp.settings",
    "TableFeatures": "likelier.tables.transformer",
    "TextFeatures": "likelier.text.transformer",
    "kernels": "likelier.kernels",
    "load": "likelier.registry",
    "load_predictor": "likelier.registry",
    "losses": "likelier.losses",
    "save": "likelier.registry",
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module 'likelier' has no attribute {name!r}")
    module = import_module(_HOME[name])
    value = module if _HOME[name] == f"likelier.{name}" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, imported or not."""
    return sorted(__all__)

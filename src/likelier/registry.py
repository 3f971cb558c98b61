"""Save and load models without pickle: one file, and every byte of it is checked.

A saved model is a plain zip, stored uncompressed, with two members:

``manifest.json``        format version, likelier version, class, constructor parameters and
                         fitted attributes, the SHA-256 of the arrays and of the manifest itself
``arrays.safetensors``   every array, by the path of the attribute that holds it

The archive comment ends in the SHA-256 of all bytes before it, so a changed byte anywhere,
the zip's own headers included, is an error and never a silently altered model. Nothing in a
file can run code: values are plain data, and a class is looked up by name in an allow-list
(what likelier exports, its helpers, and what `register_savable` added).

The rule for an estimator is general: ``vars(estimator)`` is its constructor parameters
(``get_params(deep=False)``) plus what fitting added. What may be stored: None, bool, int,
float, str, NumPy scalars and arrays (numbers, bool, text, objects that are themselves
storable), lists, tuples, dicts keyed by text or numbers, losses, CSR matrices and other
savable estimators. A random generator given as a *parameter* is stored as None with a warning,
because predictions do not depend on it: pass an int to keep a refit reproducible.
Callbacks watch one run of ``fit`` and are left out.

Every later format keeps the archive comment and the keys ``format`` and ``sha256`` of the
manifest, so an old likelier can tell a newer file from a damaged one.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import warnings
from numbers import Integral
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from likelier import __version__
from likelier.base import Posterior
from likelier.files.archive import FORMAT, canonical, read_archive, replacing, write_archive
from likelier.files.values import Decoder, Encoder, Fitted, FittedDecoder, is_estimator
from likelier.predictor import ConstantPosterior, Predictor
from likelier.value import Value

__all__ = ["load", "load_predictor", "read_manifest", "register_savable", "save"]

AnyClass = TypeVar("AnyClass", bound=type)

# Helper classes of likelier that are not exported estimators: name -> module that holds it.
# They are stored by their to_json and from_json, or as an estimator if they are one.
_HELPERS: dict[str, str] = {
    "LibsvmLayout": "likelier.data",
    "TableEncoding": "likelier.tables",
    "TermStatistics": "likelier.text.counts",
    "Vocabulary": "likelier.text.vocabulary",
    **dict.fromkeys(
        ("Laplacian", "Linear", "Matern", "Poly", "Precomputed", "Rbf", "Sigmoid"),
        "likelier.kernels",
    ),
}
_registered: dict[str, type] = {}

# Estimators -> the function that makes their posterior from what a file holds of them.
_POSTERIORS: dict[str, str] = {
    "BayesianLinearClassifier": "likelier.bayesian_linear.posterior:classifier",
    "BayesianKernelClassifier": "likelier.kernel_machine.posterior:classifier",
    "BayesianKernelRegressor": "likelier.kernel_machine.posterior:regressor",
    "BernoulliNB": "likelier.naive_bayes.posterior:bernoulli",
    "DeepGPClassifier": "likelier.deep_gp.posterior:classifier",
    "DeepGPRegressor": "likelier.deep_gp.posterior:regressor",
    "GaussianNB": "likelier.naive_bayes.posterior:gaussian",
    "LinearClassifier": "likelier.linear.posterior:classifier",
    "LinearRegressor": "likelier.linear.posterior:regressor",
    "MultilabelClassifier": "likelier.multilabel.posterior:classifier",
    "MultinomialNB": "likelier.naive_bayes.posterior:multinomial",
    "OnePassClassifier": "likelier.one_pass.posterior:one_pass",
    "SVC": "likelier.svm.posterior:classifier",
    "SVR": "likelier.svm.posterior:regressor",
}


def register_savable(cls: AnyClass) -> AnyClass:
    """Allow a class of your own to be saved and loaded; also usable as a decorator.

    Parameters
    ----------
    cls : type
        A scikit-learn style estimator (stored by parameters and attributes), or a class with
        ``to_json()`` and a class method ``from_json(plain)``. A file names it by its bare
        class name, so the program that loads must register the same class first.

    Returns
    -------
    type
        The class itself.
    """
    taken = savable_class(cls.__name__)
    if taken is not None and taken is not cls and cls.__name__ not in _registered:
        raise ValueError(f"{cls.__name__!r} is the name of a class of likelier; choose another.")
    if not is_estimator(cls) and not (hasattr(cls, "to_json") and hasattr(cls, "from_json")):
        raise TypeError(
            f"{cls.__name__} is neither a scikit-learn estimator nor has to_json and from_json."
        )
    _registered[cls.__name__] = cls
    return cls


def savable_class(name: str) -> Any:
    """Return the class of this name on the allow-list, or None."""
    if name in _registered:
        return _registered[name]
    package = importlib.import_module("likelier")
    if name in getattr(package, "__all__", ()):
        public = getattr(package, name)
        if isinstance(public, type) and (is_estimator(public) or issubclass(public, Value)):
            return public
    if name in _HELPERS:
        return getattr(importlib.import_module(_HELPERS[name]), name)
    return None


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a model to one file, atomically.

    The file is written under a temporary name in the same folder, flushed to disk and then
    renamed: an interrupted save leaves the old file, whole.

    Parameters
    ----------
    model : estimator
        An estimator of likelier, fitted or not, or an instance of a class given to
        `register_savable`.
    path : str or path-like
        Where to write; an existing file is replaced.

    Raises
    ------
    TypeError
        The model, or something it holds, cannot be stored without pickle. The message names
        the attribute.

    Warns
    -----
    UserWarning
        A random generator given as a constructor parameter is stored as None.

    See Also
    --------
    load : the way back.
    """
    encoder = Encoder(savable_class)
    body = encoder.estimator(model, type(model).__name__)
    for where in encoder.dropped_generators:
        warnings.warn(
            f"{where} is a random generator, which is not stored: it loads as None. "
            "Pass an int to keep a later fit reproducible.",
            UserWarning,
            stacklevel=2,
        )
    arrays = save_tensors(encoder.arrays)
    manifest = {
        "format": FORMAT,
        "likelier": __version__,
        **body,
        "arrays_sha256": hashlib.sha256(arrays).hexdigest(),
    }
    manifest["sha256"] = hashlib.sha256(canonical(manifest)).hexdigest()
    with replacing(path) as temporary:
        write_archive(temporary, canonical(manifest), arrays)


def load(path: str | os.PathLike[str]) -> Any:
    """Read a model written by `save`; its predictions are bit-identical.

    Parameters
    ----------
    path : str or path-like
        A file written by `save`.

    Returns
    -------
    estimator
        A new instance of the class that was saved.

    Raises
    ------
    ValueError
        The file is damaged, cut short, of another kind, of another format version, or names a
        class that is not on the allow-list. No part of such a file is ever used.

    See Also
    --------
    save : the way there.
    load_predictor : the same for a program that only predicts.
    """
    model = _decoded(path, Decoder)
    name = type(model).__name__
    fitted = [key for key in vars(model) if key.endswith("_") and not key.startswith("_")]
    if name in _POSTERIORS and fitted and not hasattr(model, "n_features_in_"):
        raise ValueError(f"{path}: {name} is malformed: it has {fitted[0]}, and no n_features_in_")
    if name in _POSTERIORS and fitted and _is_fitted(path, model):
        _checked(path, model, name)
    return model


def load_predictor(path: str | os.PathLike[str]) -> Predictor:
    """Read a model written by `save` as a `Predictor`, without importing scikit-learn.

    Parameters
    ----------
    path : str or path-like
        A file written by `save` that holds a fitted model.

    Returns
    -------
    Predictor
        Its predictions are those of the estimator, to the bit.

    Raises
    ------
    ValueError
        As `load` does; or the file holds no fitted model of a class that has a posterior.
    """
    fitted = load_contents(path)
    if not hasattr(fitted, "n_features_in_"):
        raise ValueError(f"{path} holds no fitted model, but a {fitted.name}.")
    if fitted.name not in _POSTERIORS:
        raise ValueError(f"{path}: {fitted.name} has no predictor yet; use likelier.load.")
    return _checked(path, fitted, fitted.name)


def load_contents(path: str | os.PathLike[str]) -> Fitted:
    """Return what a model file holds, parameters and fitted attributes by name, with no class."""
    contents: Fitted = _decoded(path, FittedDecoder)
    return contents


def _is_fitted(path: Any, estimator: Any) -> bool:
    """Whether an estimator that has seen rows can predict: it may be about to go on with a fit."""
    says = getattr(estimator, "__sklearn_is_fitted__", None)
    try:
        return says is None or bool(says())
    except Exception as error:  # whatever a changed file makes of it
        raise ValueError(f"{path}: {type(estimator).__name__} is malformed: {error}") from error


def _checked(path: Any, fitted: Any, name: str) -> Predictor:
    """The predictor of what a file holds, if it is whole: what loads can predict."""
    try:
        posterior: Posterior = ConstantPosterior()
        if not getattr(fitted, "constant_", False):
            module, _, function = _POSTERIORS[name].partition(":")
            posterior = getattr(importlib.import_module(module), function)(fitted)
        found = Predictor(
            posterior,
            fitted.n_features_in_,
            getattr(fitted, "classes_", None),
            getattr(fitted, "feature_names_in_", None),
            getattr(fitted, "encoding_", None),
        )
        found.check()
        n_jobs = getattr(fitted, "n_jobs", None)
        if n_jobs is not None and (not isinstance(n_jobs, Integral) or n_jobs == 0):
            raise ValueError(f"n_jobs must be an integer other than 0 or None, not {n_jobs!r}")
    except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError) as error:
        raise ValueError(f"{path}: {name} cannot predict: {error}") from error
    return found


def _decoded(path: str | os.PathLike[str], decoder: type[Decoder]) -> Any:
    """What a file holds, checked byte by byte."""
    manifest, arrays = read_archive(Path(path))
    try:
        return decoder(load_tensors(arrays), savable_class).estimator(manifest)
    except (SafetensorError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: the manifest is malformed ({error!r}).") from error
    except (RecursionError, OverflowError, MemoryError) as error:
        raise ValueError(f"{path}: the manifest asks for absurd sizes ({error!r}).") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def read_manifest(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the manifest of a saved model after checking the whole file, as `load` does."""
    return read_archive(Path(path))[0]

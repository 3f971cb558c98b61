"""What is fitted on both commits: every public estimator, by its routes and ways to give rows.

Cases use public names only (``likelier.X``), since modules move. Where something is renamed,
`OLD_NAMES` says what it was called, and cases use the new name on both sides; where parameters
become fields of a value, write the case as a function of the library that finds out which it is.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from nets.data import Data, make_data, write_table

OLD_NAMES: dict[str, str] = {
    "label_distribution": "label_law",
    "input_scale_": "input_spread_",
    "target_scale_": "target_spread_",
}
"""New name of a class, parameter, method or fitted attribute -> what it was called before."""

GROUPS = {"inference", "mixture", "solver"}
"""Parameters that are values; before, each of their parameters was one of the estimator."""

Answers = dict[str, Any]
Way = Callable[[Any, Data, Path], tuple[Any, Data]]


@dataclass(frozen=True)
class Case:
    """One fit: what (class and parameters), on which rows, given in which way.

    ``size`` is rows and features for `same.py`, ``speed`` rows and features for `speed.py`
    where the case is one of its headlines. ``params`` may depend on the library.
    """

    name: str
    estimator: str
    params: dict[str, Any] | Callable[[Any], dict[str, Any]]
    kind: str
    size: tuple[int, int]
    way: str
    speed: tuple[int, int] | None = None
    random: bool = True
    steps: Callable[[Any, Case, tuple[int, int], Path], Answers] | None = field(
        default=None, repr=False
    )

    @property
    def family(self) -> str:
        """First part of the name."""
        return self.name.split("/")[0]

    def prepare(self, library: Any, size: tuple[int, int], folder: Path) -> Callable[[], Answers]:
        """Make the data; return what is timed, and may be repeated: the fit and its answers."""
        if self.steps is not None:
            return partial(self.steps, library, self, size, folder)
        data = make_data(self.kind, *size)
        way = WAYS[self.way]
        return lambda: answers(*way(make_model(library, self), data, folder))


def by_any_name(owner: Any, name: str) -> Any:
    """Attribute by its present name, or by the one it had."""
    try:
        return getattr(owner, name)
    except AttributeError:
        if name not in OLD_NAMES:
            raise
        return getattr(owner, OLD_NAMES[name])


def make_model(library: Any, case: Case) -> Any:
    """Make the estimator of a case; parameters by their old names where it has these."""
    make = by_any_name(library, case.estimator)
    known = inspect.signature(make).parameters
    params = dict(case.params(library) if callable(case.params) else case.params)
    params = {name: _value(library, value) for name, value in params.items()}
    if case.random and "random_state" in known:
        params["random_state"] = 0
    return make().set_params(**by_known_names(params, known))


def by_known_names(params: Mapping[str, Any], known: Iterable[str]) -> dict[str, Any]:
    """Parameters by the names of a library, where those in a value were once the estimator's."""
    found = {}
    for name, value in params.items():
        inner = name.partition("__")[2]
        if name in known or not (inner or name in GROUPS or name in OLD_NAMES):
            found[name] = value
        elif inner:
            found[inner if inner in known else name] = value
        elif name in OLD_NAMES:
            found[OLD_NAMES[name]] = value
    if "penalty" in known and "l1_ratio" in found:
        found["penalty"] = "elasticnet"
    if "multi_class" in known and found.get("loss") == "softmax":
        found |= {"loss": "log_loss", "multi_class": "multinomial"}
    return found


def _value(library: Any, value: Any) -> Any:
    """Make a loss of ``Loss(...)`` written as a tuple of its name and parameters."""
    if isinstance(value, tuple) and isinstance(value[0], str):
        return by_any_name(library.losses, value[0])(**value[1])
    return value


# -- ways to give rows -----------------------------------------------------------------


def _dense(model: Any, data: Data, folder: Path) -> tuple[Any, Data]:
    return model.fit(data.X, data.y), data


def _weighted(model: Any, data: Data, folder: Path) -> tuple[Any, Data]:
    return model.fit(data.X, data.y, sample_weight=data.weight), data


def _stream(model: Any, data: Data, folder: Path) -> tuple[Any, Data]:
    return model.fit(data.blocks()), data


def _weighted_stream(model: Any, data: Data, folder: Path) -> tuple[Any, Data]:
    return model.fit(data.blocks(weighted=True)), data


def _once(model: Any, data: Data, folder: Path) -> tuple[Any, Data]:
    return model.fit(iter(data.blocks())), data


def _path(model: Any, data: Data, folder: Path) -> tuple[Any, Data]:
    return model.fit(str(data.write(folder / "rows.csv")), "y"), data


def _partial(model: Any, data: Data, folder: Path) -> tuple[Any, Data]:
    named = "classes" in inspect.signature(model.partial_fit).parameters
    classes = {"classes": np.unique(data.y)} if named and np.ndim(data.y) == 1 else {}
    for X, y in data.blocks():
        model.partial_fit(X, y, **classes)
    return model, data


def _merged(model: Any, data: Data, folder: Path) -> tuple[Any, Data]:
    parts = [type(model)(**model.get_params()).fit(X, y) for X, y in data.blocks()]
    for part in parts[1:]:
        parts[0].merge(part)
    return parts[0], data


def _saved(model: Any, data: Data, folder: Path) -> tuple[Any, Data]:
    library = importlib.import_module("likelier")
    library.save(model.fit(data.X, data.y), folder / "model")
    return library.load(folder / "model"), data


def _classes_of_labels(model: Any, data: Data, folder: Path) -> tuple[Any, Data]:
    """Fit a multi-label model on label sets, weighted."""
    return model.fit(data.X, np.nan_to_num(data.y), sample_weight=data.weight), data


WAYS: dict[str, Way] = {
    "dense": _dense,
    "sparse": _dense,
    "weighted": _weighted,
    "stream": _stream,
    "weighted stream": _weighted_stream,
    "once": _once,
    "path": _path,
    "partial": _partial,
    "merged": _merged,
    "saved": _saved,
    "known labels": _classes_of_labels,
}


# -- what is compared ------------------------------------------------------------------

METHODS: dict[str, Callable[[Any, Data], Any]] = {
    "predict": lambda call, data: call(data.new),
    "predict_proba": lambda call, data: call(data.new),
    "predict_log_proba": lambda call, data: call(data.new),
    "predict_joint_log_proba": lambda call, data: call(data.new),
    "decision_function": lambda call, data: call(data.new),
    "predict_interval": lambda call, data: call(data.new, coverage=0.8),
    "predict_quantiles": lambda call, data: call(data.new, alpha=[0.1, 0.5, 0.9]),
    "predict_uncertainty": lambda call, data: call(data.new),
    "predict_topk": lambda call, data: call(data.new, k=2),
    "score_samples": lambda call, data: call(data.new),
    "is_outlier": lambda call, data: call(data.new),
    "log_predictive_density": lambda call, data: call(data.new, data.new_y),
    "transform": lambda call, data: call(data.new),
    "coef_interval": lambda call, data: call(0.8),
    "coef_covariance": lambda call, data: call(),
    "coef_draws": lambda call, data: call(3, random_state=0),
    "sample": lambda call, data: call(4),
    "sample_y": lambda call, data: call(data.new, random_state=0),
    "get_feature_names_out": lambda call, data: call(),
}


def answers(model: Any, data: Data) -> Answers:
    """All that a fitted model says of new rows, and what it has stored."""
    found: Answers = {}
    for name, ask in METHODS.items():
        try:
            method = by_any_name(model, name)
        except AttributeError:  # also where it depends on the parameters
            continue
        found[name] = attempt(partial(ask, method, data))
        if name == "predict" and "return_std" in inspect.signature(method).parameters:
            found["predict_std"] = attempt(partial(method, data.new, return_std=True))
    return found | fitted_state(model)


def attempt(compute: Callable[[], Any]) -> Any:
    """Return a result, or the name of the error instead of it."""
    try:
        return compute()
    except Exception as error:  # any error is an answer, and the other side must give it too
        return f"raises {type(error).__name__}"


def fitted_state(model: Any) -> Answers:
    """Collect fitted attributes, stored or computed; a private name begins with an underscore."""
    params = set(model.get_params(deep=False))
    state = {name: value for name, value in vars(model).items() if name not in params}
    if "encoding_" in state:  # of a file
        state["encoding_"] = state["encoding_"].to_json()
    computed = [name for name in dir(type(model)) if re.fullmatch(r"[A-Za-z]\w*_", name)]
    for name in computed:
        if name not in state and isinstance(getattr(type(model), name), property):
            try:
                state[name] = getattr(model, name)
            except AttributeError:
                continue
            except Exception as error:  # such as coefficients of a kernel that has none
                state[name] = f"raises {type(error).__name__}"
    news = {old: new for new, old in OLD_NAMES.items()}
    return {news.get(name, name): value for name, value in state.items()}


# -- cases that are not one fit of one estimator ---------------------------------------


def _table_steps(
    target: str, library: Any, case: Case, size: tuple[int, int], folder: Path
) -> Answers:
    """Fit a mixed table; predict the file with the model and with its predictor."""
    train = write_table(folder / "train.csv", size[0], target)
    model = make_model(library, case).fit(str(train), y="target")
    library.save(model, folder / "model")
    found: Answers = {}
    for name, one in {"fitted": model, "loaded": library.load_predictor(folder / "model")}.items():
        found[f"{name}.predict"] = one.predict(str(train))
        if target != "number":
            found[f"{name}.predict_proba"] = one.predict_proba(str(train))
    return found | {f"estimator_.{k}": v for k, v in fitted_state(model).items()}


def _features_steps(library: Any, case: Case, size: tuple[int, int], folder: Path) -> Answers:
    """Encode a frame of mixed columns by `TableFeatures`."""
    import pandas as pd

    frame = pd.read_csv(write_table(folder / "train.csv", size[0], "number"))
    model = make_model(library, case).fit(frame.drop(columns="target"), frame["target"])
    rows = frame.drop(columns="target").iloc[::3]
    return {"transform": model.transform(rows), "names": model.get_feature_names_out()}


def _path_steps(library: Any, case: Case, size: tuple[int, int], folder: Path) -> Answers:
    """Fit a path over ``C``."""
    data = make_data(case.kind, *size)
    models = make_model(library, case).fit_path(data.X, data.y, [0.1, 1.0, 10.0])
    return {f"{i}.{k}": v for i, m in enumerate(models) for k, v in answers(m, data).items()}


# -- the list --------------------------------------------------------------------------


def _linear() -> Iterable[Case]:
    small, many = (2_000, 6), (20_000, 6)  # many rows make several blocks
    wide, wider = (600, 1_600), (20_000, 4_000)

    def case(
        name: str, params: dict[str, Any], kind: str, size: Any, way: str, **more: Any
    ) -> Case:
        regression = kind.endswith(("numbers", "counts"))
        short = "Regressor" if regression else "Classifier"
        title = f"linear/{short.lower()}-{name}/{way}"
        return Case(title, f"Linear{short}", params, kind, size, way, **more)

    yield case("newton", {}, "two", many, "dense", speed=(60_000, 30))
    yield case("newton-three", {}, "three", many, "weighted")
    yield case("newton-softmax", {"loss": "softmax"}, "three", small, "dense", speed=(80_000, 12))
    yield case("newton", {"l1_ratio": 0.15}, "two", small, "weighted stream")
    yield case("newton", {}, "two", small, "path")
    yield case("newton", {}, "three", small, "once")
    yield case("newton", {}, "three", small, "saved")
    yield case("newton", {}, "two", small, "partial")
    yield case("newton-balanced", {"class_weight": "balanced"}, "three", small, "stream")
    yield case("interior", {"loss": "hinge"}, "two", small, "dense", speed=(20_000, 20))
    yield case("interior-joint", {"loss": "multiclass_hinge"}, "three", small, "weighted")
    yield case("squared-hinge", {"loss": "squared_hinge"}, "three", many, "dense")
    yield case("lbfgs", {}, "two", wide, "dense", speed=(1_500, 1_600))
    yield case("lbfgs-softmax", {"loss": "softmax"}, "three", (600, 700), "dense")
    yield case("dual", {}, "sparse two", wider, "sparse", speed=(40_000, 10_000))
    yield case("dual-hinge", {"loss": "hinge"}, "sparse three", wider, "weighted")
    lasso = {"l1_ratio": 1.0, "alpha": 0.003}
    yield case("active-set", lasso, "sparse two", wider, "sparse", speed=(40_000, 10_000))
    yield case("sgd", {"max_iter": 20}, "sparse two", wider, "stream", speed=(5_000, 10_000))
    rate = {"solver__learning_rate": "invscaling", "solver__eta0": 0.05}
    rate = {"solver": "sgd", "max_iter": 5, **rate}
    yield case("explicit", {"solver__update": "explicit", **rate}, "two", small, "dense")
    yield case("implicit", rate, "three", small, "stream")
    stopping = {"solver": "sgd", "solver__early_stopping": True, "max_iter": 15}
    yield case("early-stopping", stopping, "two", small, "dense")

    yield case("squares", {}, "numbers", many, "dense", speed=(100_000, 30))
    yield case("squares", {}, "numbers", small, "stream")
    yield case("squares", {}, "numbers", small, "partial")
    yield case("squares", {}, "numbers", small, "saved")
    yield case("huber", {"loss": "huber"}, "numbers", small, "weighted")
    yield case("quantile", {"loss": ("Quantile", {"tau": 0.8})}, "numbers", small, "dense")
    tube = {"loss": ("EpsilonInsensitive", {"epsilon": 0.3})}
    yield case("tube", tube, "numbers", small, "path")
    yield case("poisson", {"loss": "poisson"}, "counts", small, "dense")
    yield case("dual", {}, "sparse numbers", wider, "sparse")
    yield case("lasso", {"l1_ratio": 1.0, "alpha": 0.01}, "numbers", (400, 1_600), "dense")


def _kernel() -> Iterable[Case]:
    small = (600, 4)

    def case(name: str, params: Any, kind: str, way: str, **more: Any) -> Case:
        short = "Regressor" if kind.endswith("numbers") else "Classifier"
        size = more.pop("size", small)
        title = f"kernel/{short.lower()}-{name}/{way}"
        return Case(title, f"BayesianKernel{short}", params, kind, size, way, **more)

    few = {"n_components": 80}

    def inference(name: str, fields: dict[str, Any], old: dict[str, Any]) -> Any:
        """Parameters by a value of the library, or as they were before there were such values."""

        def params(library: Any) -> dict[str, Any]:
            if hasattr(library, name):
                return {"inference": getattr(library, name)(**fields), **few}
            return {**old, **few}

        return params

    experts = inference("Evidence", {"n_experts": 4}, {"n_experts": 4})
    yield case("evidence", {}, "three", "dense", speed=(2_000, 8))
    yield case("evidence", few, "two", "weighted")
    yield case("evidence", few, "three", "stream")
    yield case("evidence", few, "two", "path")
    yield case("evidence", few, "three", "once")
    yield case("evidence", few, "two", "saved")
    yield case("evidence", few, "two", "partial")
    yield case("evidence", few, "sparse two", "sparse", size=(400, 30))
    yield case("hinge", {"loss": "hinge", **few}, "three", "dense")
    yield case("identity", {"features": "identity"}, "two", "dense")
    yield case("experts", experts, "three", "dense", size=(3_000, 4))
    old = {"inference": "svgd", "max_iter": 4, "n_particles": 3}
    swarm = inference("SVGD", {"n_updates": 40, "n_particles": 3}, old)
    yield case("svgd", swarm, "three", "dense", speed=(4_000, 8))
    old = {"inference": "stein_gaussian", "max_iter": 4, "n_particles": 2}
    gauss = inference("SteinGaussian", {"n_updates": 40, "n_particles": 2}, old)
    yield case("stein", gauss, "two", "stream")
    yield case("evidence", {}, "numbers", "dense", speed=(2_000, 8))
    yield case("evidence", few, "numbers", "weighted stream")
    yield case("evidence", few, "numbers", "saved")
    yield case("evidence", few, "numbers", "partial")
    yield case("tube", {"loss": "epsilon_insensitive", **few}, "numbers", "dense")
    yield case("experts", experts, "numbers", "dense", size=(3_000, 4))
    yield case("svgd", swarm, "numbers", "dense")


def _deep() -> Iterable[Case]:
    def case(name: str, params: dict[str, Any], kind: str, way: str, **more: Any) -> Case:
        short = "Regressor" if kind == "numbers" else "Classifier"
        words: dict[str, Any] = {"hidden_dim": 2, "n_inducing": 10, "max_iter": 20}
        words |= {"kernel__length_scales": "learned", "inference__power": 0.5}
        words |= {f"inference__{n}": v for n, v in (("n_samples", 2), ("n_draws", 4))}
        words |= {"inference__batch_size": 64}
        title = f"deep/{short.lower()}-{name}/{way}"
        return Case(title, f"DeepGP{short}", words | params, kind, (120, 3), way, **more)

    yield case("two-layers", {}, "three", "dense", speed=(600, 3))
    yield case("two-layers", {}, "two", "stream")
    yield case("two-layers", {}, "numbers", "weighted", speed=(600, 3))
    yield case("one-layer", {"layers": 1, "heteroscedastic": True}, "numbers", "saved")


def _bayesian_linear() -> Iterable[Case]:
    def case(name: str, params: dict[str, Any], kind: str, way: str, **more: Any) -> Case:
        few = {"n_draws": 40, "n_warmup": 20, "n_chains": 2}
        words = {f"inference__{name}": value for name, value in few.items()} | params
        size = more.pop("size", (1_000, 5))
        title = f"bayesian-linear/{name}/{way}"
        return Case(title, "BayesianLinearClassifier", words, kind, size, way, **more)

    yield case("auto", {}, "two", "dense", speed=(20_000, 12))
    yield case("independent", {"inference__sampler": "independent"}, "three", "weighted")
    yield case("hamiltonian", {"inference__sampler": "hamiltonian"}, "two", "saved")
    joint = {"inference__sampler": "gibbs", "loss": "softmax"}
    yield case("gibbs-joint", joint, "three", "dense")
    yield case("gibbs", {"inference__sampler": "gibbs"}, "two", "stream", speed=(1_000, 8))
    yield case("hinge", {"loss": "hinge"}, "two", "dense")
    yield case("auto", {}, "sparse two", "sparse", size=(1_000, 20))


def _one_pass() -> Iterable[Case]:
    def case(name: str, params: dict[str, Any], kind: str, way: str, **more: Any) -> Case:
        size = more.pop("size", (20_000, 6))
        return Case(f"one-pass/{name}/{way}", "OnePassClassifier", params, kind, size, way, **more)

    frozen = {"update": "frozen"}
    yield case("streaming", {}, "three", "dense", speed=(40_000, 20))
    yield case("streaming", {}, "two", "weighted stream")
    yield case("streaming", {}, "three", "partial")
    yield case("streaming", {}, "three", "merged")
    yield case("streaming", {"half_life": 100.0}, "three", "saved")
    yield case("frozen", frozen, "three", "dense", speed=(100_000, 20))
    yield case("frozen", frozen, "sparse two", "sparse", size=(20_000, 40))
    yield case("frozen", frozen, "three", "path")
    yield case("frozen", frozen, "three", "merged")
    yield case("fourier", {"features": "fourier", "n_components": 32}, "two", "dense")


def _multilabel() -> Iterable[Case]:
    def case(name: str, params: dict[str, Any], kind: str, way: str, **more: Any) -> Case:
        words = {"mixture__n_components": 4, "n_folds": 3, "mixture__max_iter": 8} | params
        size = more.pop("size", (400, 5))
        title = f"multilabel/{name}/{way}"
        return Case(title, "MultilabelClassifier", words, kind, size, way, **more)

    yield case("auto", {}, "labels", "dense", speed=(1_000, 6))
    yield case("auto", {"kernel": False}, "labels", "known labels")
    yield case("auto", {}, "sparse labels", "sparse", size=(400, 60))
    yield case("classes", {"kernel": False}, "three", "saved")
    yield case("partial", {"kernel": False}, "labels", "partial")


def _svm() -> Iterable[Case]:
    def case(name: str, params: dict[str, Any], kind: str, way: str, **more: Any) -> Case:
        size = more.pop("size", (800, 4))
        estimator = "SVR" if kind.endswith("numbers") else "SVC"
        title = f"svm/{estimator.lower()}-{name}/{way}"
        return Case(title, estimator, params, kind, size, way, **more)

    yield case("rbf", {}, "two", "dense", speed=(10_000, 10))
    yield case("rbf", {"probability": True, "class_weight": "balanced"}, "three", "weighted")
    yield case("linear", {"kernel": "linear"}, "three", "saved")
    yield case("poly", {"kernel": "poly"}, "sparse two", "sparse", size=(600, 30))
    yield case("hard", {"C": float("inf"), "gamma": 2.0}, "two", "dense")
    yield case("path", {}, "three", "over C", steps=_path_steps)
    yield case("rbf", {"probability": True}, "numbers", "weighted", speed=(8_000, 10))
    yield case("linear", {"kernel": "linear"}, "sparse numbers", "sparse", size=(600, 30))


def _naive_bayes() -> Iterable[Case]:
    def case(name: str, params: dict[str, Any], kind: str, way: str, **more: Any) -> Case:
        size = more.pop("size", (20_000, 6))
        title = f"naive-bayes/{name}/{way}"
        return Case(title, name, params, kind, size, way, **more)

    yield case("GaussianNB", {"bayesian": True}, "missing", "dense", speed=(100_000, 20))
    yield case("GaussianNB", {}, "three", "weighted stream")
    yield case("GaussianNB", {}, "three", "path")
    yield case("GaussianNB", {}, "three", "partial")
    yield case("GaussianNB", {}, "three", "merged")
    yield case("MultinomialNB", {}, "sparse three", "weighted", speed=(100_000, 1_000))
    yield case("MultinomialNB", {"bayesian": True}, "bits", "saved")
    yield case("BernoulliNB", {"alpha": 0.5}, "bits", "stream")
    yield case("BernoulliNB", {"bayesian": True}, "sparse three", "sparse", speed=(100_000, 1_000))


def _features() -> Iterable[Case]:
    def case(name: str, params: dict[str, Any], kind: str, way: str, **more: Any) -> Case:
        size = more.pop("size", (2_000, 5))
        return Case(f"features/{name}/{way}", name, params, kind, size, way, **more)

    yield case("FourierFeatures", {"n_components": 16}, "two", "dense", speed=(400_000, 20))
    yield case("NystroemFeatures", {"n_components": 16}, "two", "saved", speed=(20_000, 20))
    words = {"ngram_range": (1, 2), "min_df": 2}
    yield case("TextFeatures", words, "documents", "dense", speed=(10_000, 30))
    yield case("TextFeatures", {"n_features": 64, "idf": None}, "documents", "partial")
    yield case("TableFeatures", {}, "two", "frame", steps=_features_steps, speed=(4_000, 0))


def _tables() -> Iterable[Case]:
    def case(name: str, estimator: str, target: str, **more: Any) -> Case:
        steps = partial(_table_steps, target)
        params = more.pop("params", {})
        return Case(
            f"table/{name}/path", estimator, params, "two", (200, 0), "path", steps=steps, **more
        )

    yield case("linear-classes", "LinearClassifier", "class", speed=(4_000, 0))
    yield case("linear-numbers", "LinearRegressor", "number")
    yield case("kernel-numbers", "BayesianKernelRegressor", "number", params={"n_components": 40})
    yield case("naive-bayes", "GaussianNB", "class")


def all_cases() -> list[Case]:
    """List all cases; names are unique."""
    makers = [
        _linear,
        _kernel,
        _deep,
        _bayesian_linear,
        _one_pass,
        _multilabel,
        _svm,
        _naive_bayes,
        _features,
        _tables,
    ]
    cases = [case for make in makers for case in make()]
    names = [case.name for case in cases]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"cases of the same name: {twice}")
    return cases

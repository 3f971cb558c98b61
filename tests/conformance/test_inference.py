"""What every inference must do; they are discovered, so a new one is tested unasked.

An inference that `CASES` does not know fails the first test: say there which losses it takes.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib
import pkgutil

import numpy as np
import pytest
from scipy import sparse

import likelier
from likelier import losses
from likelier.base import Inference, Info, Posterior
from likelier.bayesian_linear.gibbs import Gibbs
from likelier.bayesian_linear.transport_moves import Hamiltonian, Independent
from likelier.deep_gp.adam import DeepAdam
from likelier.engines import LocalEngine, StreamEngine
from likelier.glm.active_set import ActiveSet
from likelier.glm.dual import Dual
from likelier.glm.interior import Interior
from likelier.glm.interior_classes import ClassInterior
from likelier.glm.lbfgs import LBFGS
from likelier.glm.model import LinearModel
from likelier.glm.newton import Newton
from likelier.glm.penalty import ElasticNet
from likelier.glm.sgd import AdaptiveSGD, ScheduledSGD
from likelier.kernel_machine.evidence import EvidenceAscent
from likelier.kernel_machine.expert_fit import ExpertFits
from likelier.kernel_machine.stein_gaussian import SteinGaussian
from likelier.kernel_machine.svgd import SVGD
from likelier.kernel_machine.weights import WeightSolver
from likelier.multilabel.label_mixture import MergingAscent
from likelier.multilabel.variational import VariationalMixture
from likelier.naive_bayes.closed_form import ClosedForm
from likelier.one_pass.updates import FrozenUpdate, StreamingUpdate
from likelier.predictive import Predictive
from likelier.svm.smo import SMO
from likelier.tables import block_source

ALL = [cls() for cls in losses.LOSSES.values()]
# How to make each, which losses it takes, and how many steps bring it near the optimum.
CASES = {
    ScheduledSGD: (lambda: ScheduledSGD(0.3, 0.5, average_from=100), lambda loss: True, 30),
    AdaptiveSGD: (AdaptiveSGD, lambda loss: True, 20),
    Newton: (Newton, lambda loss: loss.name != "multiclass_hinge", 60),
    Interior: (Interior, lambda loss: not loss.smooth and not loss.coupled, 60),
    ClassInterior: (ClassInterior, lambda loss: not loss.smooth and loss.coupled, 60),
    LBFGS: (lambda: LBFGS(1e-8), lambda loss: loss.smooth, 40),
    ActiveSet: (lambda: ActiveSet(1e-8), lambda loss: loss.smooth, 40),
    Dual: (lambda: Dual(1e-6), lambda loss: True, 300),
}
# Inferences over other models than the linear one, and the file that holds them to the same.
ELSEWHERE = {
    ClosedForm: "test_closed_form.py",
    DeepAdam: "test_deep_inference.py",
    EvidenceAscent: "test_kernel_inference.py",
    ExpertFits: "test_kernel_inference.py",
    Gibbs: "test_samplers.py",
    Hamiltonian: "test_samplers.py",
    Independent: "test_samplers.py",
    SMO: "test_smo_inference.py",
    SVGD: "test_particle_inference.py",
    SteinGaussian: "test_particle_inference.py",
    MergingAscent: "test_mixture_inference.py",
    FrozenUpdate: "test_remote_like.py",
    StreamingUpdate: "test_remote_like.py",
    WeightSolver: "test_kernel_inference.py",
    VariationalMixture: "test_mixture_inference.py",
}
PAIRS = [(kind, loss) for kind, case in CASES.items() for loss in ALL if case[1](loss)]
every_pair = pytest.mark.parametrize(
    ("kind", "loss"), PAIRS, ids=[f"{kind.__name__}-{loss.name}" for kind, loss in PAIRS]
)
N, D = 200, 4


def subclasses(kind):
    for module in pkgutil.walk_packages(likelier.__path__, "likelier."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found, todo = set(), [kind]
    while todo:
        for sub in todo.pop().__subclasses__():
            if sub.__module__.startswith("likelier."):
                found.add(sub)
            todo.append(sub)
    return found


def problem(loss, fit_intercept=True, alpha=0.05, kind=np.asarray):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D)) * (rng.random((N, D)) < 0.8)
    signal = X @ np.linspace(1.0, -0.5, D)
    K = 1
    if loss.task in ("binary", "multiclass"):
        K, y = 3, np.digitize(signal + rng.standard_normal(N), [-0.5, 0.7]).astype(float)
    elif loss.task == "count":
        y = rng.poisson(np.exp(0.5 * signal)).astype(float)
    else:
        y = signal + rng.standard_normal(N)
    l2 = np.append(np.full(D, alpha), [0.0] * int(fit_intercept))
    classes = loss.task in ("binary", "multiclass")
    model = LinearModel(loss, D, K, classes, fit_intercept, ElasticNet(l2, 0.0 * l2))
    weight = rng.uniform(0.5, 2.0, N)
    return model, LocalEngine(kind(X), y, weight, seed=1, block_rows=64)


def energy(model, engine, theta):
    total = sum(model.stats(theta, batch).value.sum() for batch in engine.blocks())
    return total / engine.n_rows + model.penalty.value(theta).sum()


def run(inference, model, engine, n_steps):
    state = inference.init(model, engine)
    infos = []
    for _ in range(n_steps):
        state, info = inference.step(state, engine)
        infos.append(info)
        if info.converged:
            break
    return inference.posterior(state).theta, infos


def test_every_inference_is_tested():
    assert subclasses(Inference) == set(CASES) | set(ELSEWHERE)


@pytest.mark.parametrize("kind", CASES)
def test_an_inference_is_a_frozen_value(kind):
    """Its parameters are fields with defaults; what changes lives in the State."""
    assert dataclasses.is_dataclass(kind)
    default = kind()
    field = dataclasses.fields(kind)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(default, field, 1)
    assert not kind.__subclasses__()  # abstract or final
    assert kind.__doc__


@every_pair
def test_init_step_posterior(kind, loss):
    model, engine = problem(loss)
    inference = CASES[kind][0]()
    state = inference.init(model, engine)
    start = inference.posterior(state)
    assert isinstance(start, Posterior)
    assert start.theta.shape == (D + 1, model.n_outputs)
    state, info = inference.step(state, engine)
    assert isinstance(info, Info)
    assert isinstance(info.converged, bool)
    assert info.passes >= 0.0
    posterior = inference.posterior(state)
    assert np.isfinite(posterior.theta).all()
    assert posterior.theta.dtype == np.float64
    X = np.zeros((5, D))
    assert posterior.scores(X).shape == (5, model.n_outputs)
    if loss.probabilistic:
        predictive = posterior.predictive(X)
        assert isinstance(predictive, Predictive)
        assert predictive.n_rows == 5
    else:
        with pytest.raises(ValueError, match="does not define a distribution"):
            posterior.predictive(X)


@every_pair
def test_the_posterior_does_not_change_with_later_steps(kind, loss):
    """States may be updated in place; what was handed out may not."""
    model, engine = problem(loss)
    inference = CASES[kind][0]()
    state = inference.init(model, engine)
    state, _ = inference.step(state, engine)
    theta = inference.posterior(state).theta
    before = theta.copy()
    for _ in range(3):
        state, _ = inference.step(state, engine)
    np.testing.assert_array_equal(theta, before)


@every_pair
def test_the_same_start_gives_the_same_bits(kind, loss):
    model, engine = problem(loss)
    inference = CASES[kind][0]()
    one, _ = run(inference, model, engine, 4)
    two, _ = run(inference, model, engine, 4)
    np.testing.assert_array_equal(one, two)


@every_pair
def test_a_copied_state_goes_on_alike(kind, loss):
    """Everything a step needs is in the State."""
    model, engine = problem(loss)
    inference = CASES[kind][0]()
    state, _ = inference.step(inference.init(model, engine), engine)
    if kind is LBFGS:  # its metric is a function, which has no copy
        return
    twin = copy.deepcopy(state)
    ends = []
    for s in (state, twin):
        for _ in range(2):
            s, _ = inference.step(s, engine)
        ends.append(inference.posterior(s).theta)
    np.testing.assert_array_equal(*ends)


@every_pair
@pytest.mark.parametrize("data", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
def test_steps_lead_near_the_optimum(kind, loss, data):
    model, engine = problem(loss, kind=data)
    make, _, n_steps = CASES[kind]
    theta, infos = run(make(), model, engine, n_steps)
    best = optimum(loss)
    zero = energy(model, engine, model.zeros())
    found = energy(model, engine, theta)
    assert found < zero
    assert found - best <= 0.05 * (zero - best)
    objectives = [info.objective for info in infos if np.isfinite(info.objective)]
    assert objectives[-1] <= objectives[0]


OPTIMA = {}


def optimum(loss):
    """Smallest objective, by the most exact inference there is for the loss."""
    if loss not in OPTIMA:
        model, engine = problem(loss)
        exact = Dual(1e-6) if loss.name == "multiclass_hinge" else Newton(1e-8)
        theta, _ = run(exact, model, engine, 400)
        OPTIMA[loss] = energy(model, engine, theta)
    return OPTIMA[loss]


@every_pair
def test_a_reported_gap_bounds_the_distance(kind, loss):
    """The reported gap of an inference is about right, and holds at convergence."""
    model, engine = problem(loss)
    make, _, n_steps = CASES[kind]
    theta, infos = run(make(), model, engine, n_steps)
    if not np.isfinite(infos[-1].gap) or not infos[-1].converged:
        return
    best = optimum(loss)
    assert energy(model, engine, theta) <= best + 1e-3 * abs(best)


@every_pair
def test_without_an_intercept(kind, loss):
    model, engine = problem(loss, fit_intercept=False)
    theta, _ = run(CASES[kind][0](), model, engine, 5)
    assert theta.shape == (D, model.n_outputs)
    assert np.isfinite(theta).all()


@pytest.mark.parametrize(
    ("kind", "loss"),
    [pair for pair in PAIRS if pair[0] in (ScheduledSGD, AdaptiveSGD, Newton)],
    ids=str,
)
def test_streams_will_do(kind, loss):
    """Those that need no rows in memory take a stream, too."""
    model, engine = problem(loss)
    blocks = [(b.X, b.y, b.weight) for b in engine.blocks()]
    flow = StreamEngine(block_source(lambda: iter(blocks)), seed=1)
    list(flow.blocks())  # counts the rows
    make, _, n_steps = CASES[kind]
    theta, _ = run(make(), model, flow, n_steps)
    assert energy(model, engine, theta) < energy(model, engine, model.zeros())


@pytest.mark.parametrize("loss", ALL, ids=lambda loss: loss.name)
def test_a_start_is_a_start(loss):
    """Every inference that supports it starts at given parameters."""
    model, engine = problem(loss)
    theta = np.random.default_rng(0).standard_normal((D + 1, model.n_outputs))
    for kind in (ScheduledSGD, AdaptiveSGD, Newton, LBFGS, ActiveSet):
        if (kind, loss) in PAIRS:
            inference = CASES[kind][0]()
            state = inference.init(model, engine, theta.copy())
            np.testing.assert_allclose(inference.posterior(state).theta, theta)

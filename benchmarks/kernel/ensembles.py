"""Ensembles over hyperparameters, with and without Stein interaction, at equal cost.

Four fits with their own length scales, whose probabilities are averaged. Without interaction every
particle ascends the evidence on its own random subsets. With interaction the four ascend jointly
by Stein variational gradient descent: a kernel of median bandwidth shares the gradients, and its
own gradient repels the particles. Everything else, including the number of evidence gradients, is
the same; at most 2,000 training rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.common import markdown_table, read_json, remember
from benchmarks.kernel.classify import measured, scores
from benchmarks.kernel.problem import Split, class_split
from likelier import BayesianKernelClassifier
from likelier.kernel_machine.evidence import (
    DECAY_FRACTION,
    FIRST_DECAY,
    MAX_INDEPENDENT,
    MEDIAN_ROWS,
    RATE,
    SECOND_DECAY,
    WARM_UP,
    AscentState,
    Plan,
    Scales,
    negative_log_joint,
    scales_of,
    start_ascent,
)

SETS = (
    "a9a", "covtype", "dna", "german.numer", "higgs_sample", "ijcnn1", "pendigits", "phishing",
    "segment", "spambase", "splice", "svmguide1", "vowel", "w8a",
)  # fmt: skip
ROWS, PARTICLES = 2000, 4
KINDS = {"one": (1, False), "alone": (PARTICLES, False), "stein": (PARTICLES, True)}


def gradient(theta: Any, X: Any, targets: Any) -> Any:
    """Gradient of the negative log joint on one subset, with targets centred and scaled there."""
    centred = targets - targets.mean(axis=0)
    spread = centred.std(axis=0)
    centred = centred[:, spread > 1e-12] / spread[spread > 1e-12]
    if not centred.shape[1]:
        return np.zeros_like(theta)
    counts = float(np.clip(centred.shape[1] - 1, 1, MAX_INDEPENDENT))
    try:
        return negative_log_joint(theta, X, centred, None, counts)[1]
    except np.linalg.LinAlgError:
        return negative_log_joint(theta, X.astype(np.float64), centred, None, counts)[1]


def stein_directions(thetas: Any, gradients: Any) -> Any:
    """Directions of Stein variational gradient descent, with the sign of gradients."""
    differences = thetas[:, None] - thetas[None]
    squares = (differences**2).sum(axis=2)
    median = np.median(squares[np.triu_indices(len(thetas), 1)])
    width = max(float(median), 1e-12) / np.log(len(thetas) + 1.0)
    kernel = np.exp(-squares / width)
    repulsion = (kernel[..., None] * differences).sum(axis=1) * 2.0 / width
    return (kernel @ gradients - repulsion) / len(thetas)


def ascend(X: Any, targets: Any, rng: Any, plan: Plan, settings: tuple[int, bool]) -> list[Scales]:
    """Scales of all particles; Adam as in the library, independent or interacting."""
    n_particles, interact = settings
    first = [start_ascent(X[rng.permutation(len(X))[:MEDIAN_ROWS]], X.shape[1])
             for _ in range(n_particles)]  # fmt: skip
    states, step = first, 0
    thetas = np.stack([state.theta for state in states])
    if n_particles > 1:  # identical particles would never separate
        thetas += 0.01 * rng.standard_normal(thetas.shape)
    moment, square = np.zeros_like(thetas), np.zeros_like(thetas)
    for steps, size in plan.stages:
        for _ in range(steps):
            step += 1
            parts = [rng.permutation(len(X))[: min(size, len(X))] for _ in range(n_particles)]
            gradients = np.stack(
                [gradient(t, X[p], targets[p]) for t, p in zip(thetas, parts, strict=True)]
            )
            if interact:
                gradients = stein_directions(thetas, gradients)
            moment = FIRST_DECAY * moment + (1 - FIRST_DECAY) * gradients
            square = SECOND_DECAY * square + (1 - SECOND_DECAY) * gradients**2
            remaining = (plan.n_steps - step + 1) / (DECAY_FRACTION * plan.n_steps)
            rate = RATE * min(1.0, step / WARM_UP) * min(1.0, remaining)
            change = moment / (1 - FIRST_DECAY**step)
            thetas = thetas - rate * change / (np.sqrt(square / (1 - SECOND_DECAY**step)) + 1e-12)
    zero = np.zeros(thetas.shape[1])
    return [scales_of(AscentState(theta, zero, zero)) for theta in thetas]


class Ensemble(BayesianKernelClassifier):
    """The library's classifier with the particles' scales from `ascend`."""

    interact = False

    def _held_rows(self, sample: Any, rng: Any) -> Any:
        if not hasattr(self, "_held"):
            self._held = super()._held_rows(sample, rng)
        return self._held

    def _prepare(self, sample: Any, held: Any, standard: Any, rng: Any, budget: Any) -> Any:
        if not hasattr(self, "_scales"):
            inside = np.setdiff1d(np.arange(sample.n), held)
            Z = standard.apply(sample.X, np.float32)[inside]
            targets = self._evidence_targets(sample.y[inside])
            settings = (self._n_particles(), self.interact)
            self._scales = ascend(Z, targets, rng, self._plan(sample.n), settings)
        self.gamma = np.zeros(sample.X.shape[1])  # skips learning the scales
        prepared = super()._prepare(sample, held, standard, rng, budget)
        self.gamma = "auto"
        return replace(prepared, scales=self._scales.pop(0))


def run(folder: Path, sets: Iterable[str], seeds: Iterable[int]) -> None:
    """Measure every set and seed that is not stored yet."""
    for seed in seeds:
        for name in sets:
            for kind in KINDS:
                key = f"{name}/{seed}/{kind}"
                found = remember(folder / "ensembles.json", key, partial(measure, kind, name, seed))
                print(f"{key}: accuracy {found['accuracy']:.4f}", flush=True)


def measure(kind: str, name: str, seed: int) -> dict[str, Any]:
    """One kind of ensemble on one split."""
    return measured(partial(_fit, kind), class_split(name, seed, ROWS), seed)


def _fit(kind: str, split: Split, seed: int) -> dict[str, Any]:
    n_particles, interact = KINDS[kind]
    model = Ensemble(n_particles=n_particles, random_state=seed)
    model.interact = interact
    start = time.process_time()
    model.fit(split.X, split.y)
    cpu = time.process_time() - start
    return {"cpu": cpu, **scores(model.predict_proba(split.X_test), split.y_test)}


def text(folder: Path) -> str:
    """The table of the measurements so far."""
    stored = read_json(folder / "ensembles.json")
    runs: dict[str, list[dict[str, Any]]] = {}
    for key in stored:
        name, seed, kind = key.rsplit("/", 2)
        keys = {k: f"{name}/{seed}/{k}" for k in KINDS}
        if kind == "one" and all(k in stored for k in keys.values()):
            runs.setdefault(name, []).append({k: stored[key_] for k, key_ in keys.items()})
    if not runs:
        return ""
    table, gains = [], []
    for name, found in sorted(runs.items()):
        mean = {k: np.mean([[r[k]["accuracy"], r[k]["log_loss"], r[k]["cpu"]] for r in found], 0)
                for k in KINDS}  # fmt: skip
        one, alone, stein = (mean[k] for k in KINDS)
        gains.append([
            100 * (alone[0] - one[0]), 100 * (stein[0] - alone[0]), alone[1] / one[1] - 1,
            stein[1] / alone[1] - 1, alone[2] / one[2],
        ])  # fmt: skip
        cells = [f"{100 * mean[k][0]:.2f} / {mean[k][1]:.3f}" for k in KINDS]
        table.append([name, str(len(found)), *cells])
    return "\n".join([
        "## Ensembles over hyperparameters", "",
        f"Accuracy and log loss of one fit, of {PARTICLES} independent fits, and of {PARTICLES} "
        f"with Stein interaction between their scales; at most {ROWS:,} rows.", "",
        markdown_table(["data set", "seeds", "one", "independent", "with interaction"], table), "",
        _summary(np.array(gains)), "",
    ])  # fmt: skip


def _summary(gains: Any) -> str:
    mean = gains.mean(axis=0)
    error = gains.std(axis=0, ddof=1) / np.sqrt(len(gains)) if len(gains) > 1 else 0 * mean
    helps = len(gains) > 1 and stats.ttest_1samp(gains[:, 3], 0.0).pvalue < 0.05 and mean[3] < 0
    shipped = "with interaction" if helps else "without interaction"
    return (
        f"Over {len(gains)} sets: {PARTICLES} independent fits change accuracy by {mean[0]:+.2f} "
        f"+- {error[0]:.2f} points and log loss by {100 * mean[2]:+.1f} +- {100 * error[2]:.1f}% "
        f"against one, at {mean[4]:.1f} times its cost. Interaction then changes accuracy by "
        f"{mean[1]:+.2f} +- {error[1]:.2f} points and log loss by {100 * mean[3]:+.1f} +- "
        f"{100 * error[3]:.1f}%. The evidence favours fits {shipped}. "
        "The library uses independent fits for `n_particles` above one, and one fit by default, "
        'which costs a fraction; joint inference over weights and scales is `inference="svgd"`.'
    )

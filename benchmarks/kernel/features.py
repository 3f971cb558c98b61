"""Feature maps: speed against NumPy and scikit-learn, and approximation error of the kernel.

Speed is processor time of one thread, 10,000 rows of 50 features to 1,000 features, with
interleaved runs. NumPy gets preallocated arrays, and ours then writes into an existing array.
scikit-learn has no such option: it is compared with the plain ``transform(X)``, which reuses the
memory of its last output. The time with newly allocated memory is reported too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.kernel_approximation import RBFSampler

from benchmarks.common import Cases, interleave, markdown_table, seconds_text
from benchmarks.datasets import _archive, data_folder
from likelier import FourierFeatures, NystroemFeatures
from likelier.kernels import make_kernel

ROWS, INPUTS, WIDTH = 10_000, 50, 1_000
# 1/50 is gamma="scale" of these rows; 1/2 means standard normal frequencies, with larger angles,
# for which NumPy's double precision functions take longer
GAMMAS = (1 / 50, 1 / 2)
SAMPLINGS = ("independent", "orthogonal", "quasi")
LANDMARKS = ("uniform", "kmeans++", "leverage")
REQUIRED = {"float32": 1.7, "float64": 8.0}
REQUIRED_OF_SAMPLER = 3.0


def run(repeats: int = 15, seeds: int = 10, report: Callable[[str], None] = print) -> Cases:
    """Measure every case; yield its name and results."""
    for dtype in ("float32", "float64"):
        for gamma in GAMMAS:
            entry = speed(dtype, gamma, repeats)
            report(
                f"features {dtype} gamma={gamma:g}: {entry['numpy_ratio']:.2f}x NumPy, "
                f"{entry['sampler_ratio']:.2f}x RBFSampler"
            )
            yield f"speed {dtype} {gamma:g}", entry
    for name in ("pendigits",) if data_folder() else ():
        X = _sample(name, 1000)
        for width in (64, 256, 1024):
            yield f"error {name} {width}", kernel_error(X, width, seeds)
    for name in ("pendigits", "segment", "spambase", "usps") if data_folder() else ():
        X = _sample(name, 2000)
        for count in (100, 400):
            yield f"landmarks {name} {count}", left_over(X, count, max(2, seeds // 3))


def speed(dtype: str, gamma: float, repeats: int) -> dict[str, Any]:
    """Time each way to compute the same number of features."""
    X = np.random.default_rng(0).normal(size=(ROWS, INPUTS)).astype(dtype)
    ours = FourierFeatures(WIDTH, gamma=gamma, random_state=0).fit(X)
    sampler = RBFSampler(gamma=gamma, n_components=WIDTH, random_state=0).fit(X)
    params = {"frequencies": ours.frequencies_, "phase": ours.phase_}
    out, other = np.empty((2, ROWS, WIDTH), dtype=X.dtype)
    angles = np.empty((ROWS, WIDTH // 2), dtype=X.dtype)
    scale = X.dtype.type((2 / WIDTH) ** 0.5)

    def plain(_: int) -> None:
        np.matmul(X, ours.frequencies_, out=angles)
        np.cos(angles, out=other[:, : WIDTH // 2])
        np.sin(angles, out=other[:, WIDTH // 2 :])
        np.multiply(other, scale, out=other)

    ours.transform(X, out=out)
    plain(0)
    difference = float(np.abs(out - other).max())
    timings, _ = interleave(
        {
            "map": _dropped(lambda: ours.apply(params, X, out)),
            "transform": _dropped(lambda: ours.transform(X, out=out)),
            "plain": _dropped(lambda: ours.transform(X)),
            "new memory": _dropped(lambda: ours.apply(params, X)),
            "numpy": plain,
            "sampler": _dropped(lambda: sampler.transform(X)),
        },
        repeats,
    )
    cpu = {name: float(np.median(timing.cpu)) for name, timing in timings.items()}
    return {
        "cpu_seconds": cpu,
        "difference": difference,
        "numpy_ratio": cpu["numpy"] / cpu["map"],
        "transform_ratio": cpu["numpy"] / cpu["transform"],
        "sampler_ratio": cpu["sampler"] / cpu["plain"],
        "sampler_ratio_out": cpu["sampler"] / cpu["transform"],
        "sampler_ratio_new_memory": cpu["sampler"] / cpu["new memory"],
    }


def _dropped(call: Callable[[], Any]) -> Callable[[int], None]:
    """A run that drops its output, as in batch-wise use."""

    def run_once(_: int) -> None:
        call()

    return run_once


def kernel_error(X: np.ndarray, width: int, seeds: int) -> dict[str, Any]:
    """Mean squared error of the RBF kernel with the median bandwidth, by sampling and form."""
    kernel = make_kernel("rbf", gamma="median", X=X)
    K = kernel.matrix(X)
    found: dict[str, float] = {}
    for sampling in SAMPLINGS:
        for paired in (True, False):
            words = {"kernel": kernel, "sampling": sampling, "paired": paired}
            errors = []
            for seed in range(seeds):
                phi = FourierFeatures(width, random_state=seed, **words).fit_transform(X)
                errors.append(float(((phi @ phi.T - K) ** 2).mean()))
            found[f"{sampling}, {'pairs' if paired else 'phases'}"] = float(np.mean(errors))
    base = found["independent, pairs"]
    return {"mean_square": found, "relative": {key: v / base for key, v in found.items()}}


def left_over(X: np.ndarray, count: int, seeds: int) -> dict[str, Any]:
    """Fraction of the kernel's trace not explained by the landmarks, by selection method."""
    kernel = make_kernel("rbf", gamma="median", X=X)
    share = {}
    for landmarks in LANDMARKS:
        words = {"kernel": kernel, "landmarks": landmarks}
        parts = [
            1.0
            - (NystroemFeatures(count, random_state=s, **words).fit_transform(X) ** 2).sum()
            / len(X)
            for s in range(seeds)
        ]
        share[landmarks] = float(np.mean(parts))
    return {"share": share}


def tables(results: dict[str, dict[str, Any]]) -> str:
    """The three tables of the page."""
    return "\n\n".join([_speed_table(results), _error_table(results), _landmark_table(results)])


def _speed_table(results: dict[str, dict[str, Any]]) -> str:
    rows = []
    for key, entry in results.items():
        if not key.startswith("speed "):
            continue
        _, dtype, gamma = key.split()
        cpu = entry["cpu_seconds"]
        met = entry["numpy_ratio"] >= REQUIRED[dtype]
        fast = entry["sampler_ratio"] >= REQUIRED_OF_SAMPLER
        rows.append(
            [f"{dtype}, gamma {gamma}"]
            + [seconds_text(cpu[n]) for n in ("map", "plain", "new memory", "numpy", "sampler")]
            + [f"{entry['numpy_ratio']:.2f} ({'met' if met else 'missed'}: {REQUIRED[dtype]:g})"]
            + [f"{cpu['numpy'] / cpu['plain']:.2f}"]
            + [f"{entry['sampler_ratio']:.2f} ({'met' if fast else 'missed'}: 3)"]
            + [f"{entry['sampler_ratio_out']:.2f}", f"{entry['sampler_ratio_new_memory']:.2f}"]
        )
    header = ["rows", "`out` given", "`transform(X)`", "in new memory", "NumPy", "RBFSampler"]
    ratios = ["NumPy / `out` given", "NumPy / `transform(X)`", "RBFSampler / `transform(X)`"]
    others = ["RBFSampler / `out` given", "RBFSampler / in new memory"]
    return markdown_table([*header, *ratios, *others], rows)


def _error_table(results: dict[str, dict[str, Any]]) -> str:
    entries = {k: v for k, v in results.items() if k.startswith("error ")}
    if not entries:
        return ""
    names = list(next(iter(entries.values()))["relative"])
    rows = [
        [key.removeprefix("error ") + " features", f"{v['mean_square'][names[0]]:.1e}"]
        + [f"{v['relative'][name]:.2f}" for name in names[1:]]
        for key, v in entries.items()
    ]
    return markdown_table(["data", names[0], *(f"{name}, relative" for name in names[1:])], rows)


def _landmark_table(results: dict[str, dict[str, Any]]) -> str:
    entries = {k: v for k, v in results.items() if k.startswith("landmarks ")}
    if not entries:
        return ""
    rows = [
        [key.removeprefix("landmarks ") + " landmarks"]
        + [f"{100 * v['share'][name]:.2f}%" for name in LANDMARKS]
        for key, v in entries.items()
    ]
    return markdown_table(["unexplained trace", *LANDMARKS], rows)


def _sample(name: str, count: int) -> np.ndarray:
    X = np.asarray(_archive(name)["X"], dtype=np.float64)
    X = X[np.random.default_rng(0).permutation(len(X))[:count]]
    return (X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)

"""Model files that were changed and sealed again: whatever loads can predict.

``python -m tests.unit.registry_fuzz N [SEED]`` tries N changed files of every kind of model, and
ends with 1 where a file that loads cannot predict, or fails with anything but one ValueError.
"""

from __future__ import annotations

import copy
import hashlib
import json
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors
from tests.unit.predictor.test_predictor import FITS

import likelier
from likelier.files.archive import canonical, read_archive, write_archive

SECONDS = 2.0  # that loading and predicting may take
SCALARS = (
    None,
    True,
    -1,
    0,
    1,
    7,
    10**9,
    -0.5,
    "x",
    "",
    [],
    {},
    {"float": "nan"},
    {"float": "inf"},
)
NUMBERS = (0.0, -1.0, 1e300, -1e300, np.nan, np.inf, -np.inf, 1e-320)


def places(plain, path=()):
    """Every place in a JSON value."""
    yield path
    if isinstance(plain, dict | list):
        items = plain.items() if isinstance(plain, dict) else enumerate(plain)
        for key, item in items:
            yield from places(item, (*path, key))


def changed_manifest(manifest, rng):
    """One change anywhere in the parameters or fitted attributes."""
    manifest = copy.deepcopy(manifest)
    found = [p for p in places(manifest) if len(p) > 1 and p[0] in ("params", "fitted")]
    path = found[rng.integers(len(found))]
    owner = manifest
    for key in path[:-1]:
        owner = owner[key]
    kind = rng.integers(4)
    if kind == 0:
        del owner[path[-1]]
    elif kind == 1:
        other = found[rng.integers(len(found))]
        value = manifest
        for key in other:
            value = value[key]
        owner[path[-1]] = copy.deepcopy(value)
    elif isinstance(owner[path[-1]], int) and kind == 2:
        owner[path[-1]] += int(rng.integers(-2, 3))
    else:
        owner[path[-1]] = SCALARS[rng.integers(len(SCALARS))]
    return manifest


def changed_arrays(arrays, rng):
    """One change of an array: values, length, type, or none at all."""
    arrays = dict(arrays)
    name = sorted(arrays)[rng.integers(len(arrays))]
    array, kind = arrays[name].copy(), rng.integers(5)
    if kind == 0:
        del arrays[name]
    elif kind == 1:
        arrays[name] = array.reshape(-1)[: rng.integers(array.size + 1)]
    elif kind == 2:
        arrays[name] = array.astype(rng.choice(["f4", "i8", "u1", "f8"]), casting="unsafe")
    elif kind == 3 and array.dtype.kind == "f":
        flat = array.reshape(-1)
        flat[rng.integers(max(1, flat.size), size=3) if flat.size else []] = NUMBERS[
            rng.integers(len(NUMBERS))
        ]
        arrays[name] = array
    else:
        arrays[name] = np.concatenate([array.reshape(-1)] * 2)
    return arrays


def seal(manifest, arrays, path):
    """Write a file with the right checksums, whatever it holds."""
    data = save_tensors(arrays)
    manifest = {k: v for k, v in manifest.items() if k != "sha256"}
    manifest["arrays_sha256"] = hashlib.sha256(data).hexdigest()
    manifest["sha256"] = hashlib.sha256(canonical(manifest)).hexdigest()
    path.write_bytes(b"")
    write_archive(path, canonical(manifest), data)


def complaint(path, rows, loaded, has_probabilities):
    """What is wrong with how a file is taken; None if it predicts or is refused."""
    start = time.perf_counter()
    for load in (likelier.load_predictor, likelier.load):
        try:
            model = load(path)
        except ValueError:
            continue
        except Exception as error:
            return f"{load.__name__}: {error!r}"
        loaded.append(load)
        try:
            with np.errstate(all="ignore"):
                model.predict(rows)
                asked = has_probabilities and hasattr(model, "predict_proba")
                if asked and getattr(model, "classes", ()) is not None:
                    model.predict_proba(rows)
        except Exception as error:
            # rows of another number of columns are the caller's error; numbers that are allowed
            # alone may overflow together; a model can say that it is not fitted, or that it has no
            # probabilities, as one without a calibration does: all in one line
            texts = ("features", "must be finite", "not fitted", "calibrat")
            if isinstance(error, ValueError) and any(text in str(error) for text in texts):
                continue
            return f"predict after {load.__name__}: {error!r}"
    took = time.perf_counter() - start
    return f"took {took:.1f} s" if took > SECONDS else None


def try_files(name, n, seed, folder):
    """Complaints about ``n`` changed files of one model, with the numbers that make them again."""
    model, rows, y = FITS[name]
    path, changed = Path(folder) / "whole.likelier", Path(folder) / "changed.likelier"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        likelier.save(model.fit(rows, y), path)
        manifest, data = read_archive(path)
        arrays = load_tensors(data)
        found, loaded = [], []
        for number in range(n):
            rng = np.random.default_rng([seed, number])
            one, other = manifest, arrays
            for _ in range(rng.integers(1, 3)):
                if rng.random() < 0.6 or not other:
                    one = changed_manifest(one, rng)
                else:
                    other = changed_arrays(other, rng)
            try:
                seal(json.loads(json.dumps(one)), other, changed)
            except (ValueError, TypeError):  # no file can hold it
                continue
            text = complaint(changed, rows[:5], loaded, hasattr(model, "predict_proba"))
            if text:
                found.append(f"{name} {seed} {number}: {text}")
        if len(loaded) < n / 40:
            found.append(f"{name}: only {len(loaded)} of {n} files were loaded, which tests little")
        return found


def main(n, seed=0):
    """Try the files of every model; the exit status."""
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        for name in FITS:
            failed += try_files(name, int(n), int(seed), folder)
    print("\n".join(failed) or "all files are refused, or predict")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

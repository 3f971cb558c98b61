"""The command as somebody types it: ``fit``, ``evaluate`` and ``predict``, and what it says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.common import ROOT
from benchmarks.tables.data import CLASSES, Split, class_name
from benchmarks.tables.scores import class_scores, number_scores

LIMIT = 600.0  # seconds for one command
MODEL, PREDICTIONS = "model.likelier", "predictions.csv"
PREFIX = "probability_"


def ours(split: Split) -> dict[str, Any]:
    """Times, messages and scores of the three commands on one split."""
    _warm_up()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        train, held = split.write(folder)
        record: dict[str, Any] = {"rows": len(split.train), "held_rows": len(split.held)}
        fit = _run(folder, "fit", train, "-t", split.table.target, "-o", MODEL)
        record |= {"fit": fit["seconds"], "told": fit["told"]}
        if fit["failed"]:
            return {**record, "failed": f"fit: {fit['failed']}"}
        later = {
            "evaluate": _run(folder, "evaluate", MODEL, held, "--json"),
            "predict": _run(folder, "predict", MODEL, held, "-o", PREDICTIONS),
        }
        record |= {step: found["seconds"] for step, found in later.items()}
        record["told_later"] = {step: found["told"] for step, found in later.items()}
        for step, found in later.items():
            if found["failed"]:
                return {**record, "failed": f"{step}: {found['failed']}"}
        try:
            return {**record, **_judge(split, json.loads(later["evaluate"]["out"]), folder)}
        except (KeyError, ValueError) as error:  # not the columns or values that were promised
            return {**record, "failed": f"output: {type(error).__name__}: {error}"}


def _judge(split: Split, told: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Scores from the file of predictions, and those the command gives itself."""
    if told["task"] != split.table.task:
        return {"failed": f"task: took it for {told['task']}, meant is {split.table.task}"}
    frame = pd.read_csv(folder / PREDICTIONS, dtype=str, keep_default_na=False)
    y = split.held_targets()
    if len(frame) != len(y):
        return {"failed": f"predict: {len(frame)} rows for {len(y)} lines"}
    known = y.notna().to_numpy()
    frame, y = frame[known], y[known].to_numpy()
    if split.table.task == CLASSES:
        names = [name for name in frame if name.startswith(PREFIX)]
        classes = [class_name(name.removeprefix(PREFIX)) for name in names]
        found = class_scores(y, classes, frame[names].astype(float).to_numpy())
    else:
        values = frame.astype(float)
        found = number_scores(
            y, values["prediction"].to_numpy(), values[["lower", "upper"]].to_numpy()
        )
    own = {name: score["value"] for name, score in told["scores"].items()}
    return {**found, "evaluated_rows": told["rows"], "evaluated": own}


def _run(folder: Path, *words: str) -> dict[str, Any]:
    """One command: its wall time, output, messages, and why it failed if it did."""
    program = Path(sys.executable).with_name("likelier")
    start = time.perf_counter()
    try:
        done = subprocess.run(
            [program, *words],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        told = [f"no answer after {LIMIT:.0f} s"]
        return {"seconds": LIMIT, "out": "", "told": told, "failed": told[-1]}
    seconds = time.perf_counter() - start
    told = [_without_paths(line, folder) for line in done.stderr.splitlines() if line.strip()]
    failed = ""
    if done.returncode:
        failed = told[-1] if told else f"exit code {done.returncode}"
    return {"seconds": seconds, "out": done.stdout, "told": told, "failed": failed}


def _without_paths(line: str, folder: Path) -> str:
    """A message without the folders of this machine."""
    for place in (folder, ROOT, Path(sys.prefix), Path.home()):
        line = line.replace(f"{place}{os.sep}", "")
    return line.rstrip()


@cache
def _warm_up() -> None:
    """Fits nobody times, one of each kind, so that no table waits for the compiler."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = [f"{i % 7},{i * i % 11},{i % 3}" for i in range(150)]
        (folder / "warm.csv").write_text("\n".join(["a,b,c", *rows]) + "\n")
        for task in ("classification", "regression"):
            model, out = f"{task}.likelier", f"{task}.csv"
            for words in (
                ("fit", "warm.csv", "-t", "c", "--task", task, "-o", model),
                ("predict", model, "warm.csv", "-o", out),
            ):
                failed = _run(folder, *words)["failed"]
                if failed:  # of every table alike: nothing to record
                    raise SystemExit(f"the command does not work: {failed}")

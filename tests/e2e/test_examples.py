"""What a newcomer tries first: the examples, and the commands and code of the README."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """Return the README's code blocks in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.stem)
def test_example_runs(path: Path, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-W", "error", str(path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip()
    assert list(tmp_path.iterdir()) == [], "an example leaves no files behind"


def test_the_python_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = blocks("python")
    exec(compile(code, "README.md", "exec"), {})
    assert (tmp_path / "diabetes.likelier").is_file()


def test_the_commands_of_the_readme_run(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("train.csv", "test.csv"):
        X = rng.normal(size=(300, 2))
        y = np.where(X[:, 0] + 0.3 * rng.normal(size=300) > 0, "yes", "no")
        lines = [f"{a:.4f},{b:.4f},{label}" for (a, b), label in zip(X, y, strict=True)]
        (tmp_path / name).write_text("\n".join(["a,b,y", *lines]) + "\n")
    commands = [line for block in blocks("sh") for line in block.splitlines()]
    commands = [shlex.split(line) for line in commands if line.startswith("likelier ")]
    assert [command[1] for command in commands] == ["fit", "evaluate", "predict"]
    for command in commands:
        program = Path(sys.executable).with_name(command[0])
        run = subprocess.run(
            [program, *command[1:]], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert run.returncode == 0, run.stdout + run.stderr
    assert len((tmp_path / "predictions.csv").read_text().splitlines()) == 301

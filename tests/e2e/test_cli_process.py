"""What only a real process shows: signals, pipes, terminals and memory."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
from tests.e2e.helpers import command, environment_without_threads, flowers, run_ok, start, write

import likelier

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and limits of POSIX")


def repeat_rows(source, target, times):
    """Write a file with the rows of another, many times over."""
    header, *rows = source.read_text().splitlines(keepends=True)
    with open(target, "w") as file:
        file.write(header)
        for _ in range(times):
            file.writelines(rows)


@pytest.fixture(scope="module")
def endless(tmp_path_factory):
    """A file so long that the passes of a fit take minutes."""
    folder = tmp_path_factory.mktemp("endless")
    repeat_rows(write(folder / "short.csv", flowers(1000, 0)), folder / "train.csv", 1000)
    return folder / "train.csv"


def start_endless_fit(endless, output):
    """Start a fit that will not end by itself, and wait until it has begun to learn."""
    process = start(
        "fit", endless, "-t", "species", "-o", output, "--force",
        "--memory", 0, "--max-iter", 1_000_000, "--tol", 0,
        "--param", "solver=sgd", "--param", "solver__learning_rate=constant",
        env=environment_without_threads(),
    )  # fmt: skip
    lines = [process.stderr.readline()]  # what was assumed of the table, and then the task
    while lines[-1] and not lines[-1].startswith("Task: classification"):
        lines.append(process.stderr.readline())
    assert lines[-1], lines
    time.sleep(1.0)
    assert process.poll() is None
    return process


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_fit_leaves_no_file(sent, code, endless, tmp_path):
    output = tmp_path / "model"
    output.write_text("old")
    process = start_endless_fit(endless, output)
    process.send_signal(sent)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == code
    assert "Traceback" not in errors
    assert len(errors.splitlines()) <= 1
    if sent == signal.SIGINT:
        assert "interrupted" in errors
    assert output.read_text() == "old"
    assert [item.name for item in tmp_path.iterdir()] == ["model"]


def test_an_interrupted_predict_leaves_no_file(tmp_path):
    train = write(tmp_path / "train.csv", flowers(200, 0))
    run_ok("fit", train, "-t", "species", "-m", "linear", "-o", tmp_path / "model")
    big = tmp_path / "big.csv"
    repeat_rows(train, big, 4000)
    process = start("predict", tmp_path / "model", big, "-o", tmp_path / "out.csv")
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(".out.csv.*.tmp")) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert list(tmp_path.glob(".out.csv.*.tmp"))
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130, errors
    assert "interrupted" in errors
    assert sorted(item.name for item in tmp_path.iterdir()) == ["big.csv", "model", "train.csv"]


def test_a_closed_pipe_is_no_error(tmp_path):
    train = write(tmp_path / "train.csv", flowers(20_000, 0))
    run_ok("fit", train, "-t", "species", "-m", "linear", "-o", tmp_path / "model")
    with start("predict", tmp_path / "model", train, "-o", "-") as process:
        assert "prediction" in process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read()
    assert "Traceback" not in errors
    assert "rror" not in errors


def test_a_bar_only_on_a_terminal(tmp_path):
    """Under a pseudo-terminal the bar is drawn; in a pipe nothing of it is seen."""
    code = textwrap.dedent(
        """
        import os, pty, sys
        sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))
        """
    )
    train = write(tmp_path / "train.csv", flowers(60_000, 0))
    args = [*command(), "fit", str(train), "-t", "species", "-o", str(tmp_path / "m")]
    args += ["-m", "linear", "--memory", "0", "--max-iter", "3"]
    shown = subprocess.run(
        [sys.executable, "-c", code, *args],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={**environment_without_threads(), "TERM": "xterm", "COLUMNS": "80"},
        timeout=120,
        check=True,
    )
    assert b"left" in shown.stdout
    assert b"%" in shown.stdout
    piped = subprocess.run(args, capture_output=True, timeout=120, check=True)
    assert b"left" not in piped.stderr
    assert b"\x1b[" not in piped.stderr


def test_help_is_quick_and_imports_little():
    code = "import sys; from likelier.cli import main; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    for heavy in ("numba", "sklearn", "pyarrow", "scipy", "pandas", "jax"):
        assert heavy not in loaded


def peak_memory(*args):
    """Run the command and return the most memory it held, in megabytes."""
    with start(*args, env=environment_without_threads()) as process:
        process.stdout.read()
        errors = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, errors
    return usage.ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_memory_does_not_grow_with_the_file(tmp_path):
    """The large file alone, held as floats, would take 160 MB more than the small one."""
    rng = np.random.default_rng(0)
    small, large = tmp_path / "small.csv", tmp_path / "large.csv"
    header = ",".join(f"c{i}" for i in range(20)) + ",y\n"
    for path, blocks in ((small, 5), (large, 105)):
        with open(path, "w") as file:
            file.write(header)
            for _ in range(blocks):
                X = rng.standard_normal((10_000, 20)).astype(np.float32)
                y = X[:, 0] + rng.standard_normal(10_000) > 0
                text = [",".join(f"{v:.4f}" for v in row) for row in X[:500]]
                file.write(
                    "".join(f"{line},{int(label)}\n" for line, label in zip(text, y, strict=False))
                    * 20
                )
    limits = ("--memory", 8, "--max-iter", 2)
    peak = {}
    for path in (small, large):
        model, out = tmp_path / "m", tmp_path / "out.parquet"
        peak["fit", path] = peak_memory("fit", path, "-t", "y", "-o", model, *limits)
        peak["predict", path] = peak_memory("predict", model, path, "-o", out)
        peak["evaluate", path] = peak_memory("evaluate", model, path)
    for name in ("fit", "predict", "evaluate"):
        assert peak[name, large] < peak[name, small] + 60, peak


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_fit_resumes_from_its_checkpoint(sent, code, endless, tmp_path):
    fit = (
        "fit", endless, "-t", "species", "-m", "linear", "--memory", 0, "--tol", 1e-12,
        "--checkpoint", tmp_path / "checkpoints",
    )  # fmt: skip
    process = start(*fit, "-o", tmp_path / "model", env=environment_without_threads())
    for line in process.stderr:
        if line.startswith("Task"):
            break
    time.sleep(2.0)
    process.send_signal(sent)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == code
    assert "The same command resumes the fit" in errors
    assert not (tmp_path / "model").exists()
    run_ok(*fit, "-o", tmp_path / "model")
    assert not list((tmp_path / "checkpoints").iterdir())
    run_ok(*fit[:-2], "-o", tmp_path / "whole")
    found, whole = (likelier.load(tmp_path / name) for name in ("model", "whole"))
    np.testing.assert_array_equal(found.coef_, whole.coef_)

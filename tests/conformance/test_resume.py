"""Killed fits: resumed, each is the uninterrupted one to the bit, and does no stage again."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.conformance.resume_cases import CASES

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks processes")


@needs_fork
@pytest.mark.parametrize("name", CASES)
def test_a_killed_fit_resumes_to_the_same_bits(name, tmp_path):
    command = [sys.executable, "-m", "tests.conformance.resume_worker", name, str(tmp_path)]
    one_thread = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # threads do not survive a fork
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=one_thread, timeout=250
    )
    assert done.returncode == 0, done.stdout + done.stderr

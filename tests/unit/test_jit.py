"""The line that says why a first fit takes long."""

from __future__ import annotations

import logging

import pytest

from likelier import jit


def test_long_compiling_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = iter([0.0, 100.0, 101.0, 102.5, 103.0])
    monkeypatch.setattr(jit.time, "perf_counter", lambda: next(clock))
    report = jit.Report()
    with caplog.at_level(logging.WARNING, logger="likelier"):
        report.on_start(None)  # at 100: nothing was being compiled before
        report.on_start(None)  # at 101, inside
        assert not caplog.messages
        report.on_end(None)  # at 102.5
        report.on_end(None)
    assert len(caplog.messages) == 1 and "once; cached" in caplog.messages[0]

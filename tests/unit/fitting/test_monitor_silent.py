"""Monitors of fits inside of a stage."""

from likelier.fitting.monitor import Monitor


def test_a_silent_monitor_tells_nobody_and_has_no_time_budget(capsys):
    outer = Monitor(verbose=True, time_budget=1e-9)
    inner = outer.silent()
    assert outer.over and not inner.tick("pass")
    assert capsys.readouterr().out == ""
    assert (outer.n_steps, inner.n_steps) == (0, 1)
    assert inner.journal is outer.journal

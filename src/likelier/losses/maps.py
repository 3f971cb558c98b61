"""Losses of many rows: the functions of `compiled` in a loop over arrays."""

from likelier.jit import njit
from likelier.losses.compiled import (
    coupled_gradient,
    coupled_prox,
    coupled_value,
    loss_curvature,
    loss_derivative,
    loss_prox,
    loss_value,
)

_compiled = njit(cache=True, nogil=True)


@_compiled
def map_value(code, p, y, f, out):
    """Loss of every row, into ``out``."""
    for i in range(len(f)):
        out[i] = loss_value(code, p, y[i], f[i])


@_compiled
def map_derivative(code, p, y, f, out):
    """Derivative of every row, into ``out``."""
    for i in range(len(f)):
        out[i] = loss_derivative(code, p, y[i], f[i])


@_compiled
def map_curvature(code, p, y, f, out):
    """Second derivative of every row, into ``out``."""
    for i in range(len(f)):
        out[i] = loss_curvature(code, p, y[i], f[i])


@_compiled
def map_prox(code, p, y, m, c, out):
    """Implicit step of every row, into ``out``."""
    for i in range(len(m)):
        out[i] = loss_prox(code, p, y[i], m[i], c[i])


@_compiled
def map_coupled_value(code, y, f, out):
    """Loss of every row with one score per class, into ``out``."""
    for i in range(len(f)):
        out[i] = coupled_value(code, y[i], f[i])


@_compiled
def map_coupled_gradient(code, y, f, out):
    """Derivative of every row with respect to every score, into ``out``."""
    for i in range(len(f)):
        coupled_gradient(code, y[i], f[i], out[i])


@_compiled
def map_coupled_prox(code, y, m, c, out):
    """Implicit step of every row with one score per class, into ``out``."""
    for i in range(len(m)):
        coupled_prox(code, y[i], m[i], c[i], out[i])

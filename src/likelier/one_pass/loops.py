"""Sums over rows for the scale and the offset of late classes.

A row has score ``scale_k u_ik + offset_k`` for a late class ``k`` and ``others_i`` for all other
classes together; its probabilities are the softmax of these.
"""

from __future__ import annotations

import numpy as np

from likelier.jit import njit
from likelier.loops.exponential import FLAGS, fast_exp

# Sums over outputs may be reordered and scores are finite, which lets loops use the vector unit.
_compiled = njit(cache=True, nogil=True, fastmath=FLAGS | {"reassoc", "nnan"}, error_model="numpy")


@_compiled
def late_sums(unit_scores, others, own, weight, scale, offset, curved):
    """Loss of all rows, its gradient in ``scale`` and ``offset`` of every class, and curvatures.

    ``own`` is 0 for a row of a fixed class, else one plus the index of its late class. The gradient
    has shape ``(2, K)``. Curvatures ``(3, K)`` are those of ``scale``, mixed, and of ``offset``,
    and are 0 unless ``curved``. Each loop writes a single array: with more, the compiler cannot
    rule out aliasing.
    """
    n_late = unit_scores.shape[1]
    score, p, variance = np.empty(n_late), np.empty(n_late), np.empty(n_late)
    gradient, curvatures = np.zeros((2, n_late)), np.zeros((3, n_late))
    scale_gradient, offset_gradient = gradient[0], gradient[1]
    scale_curvature, cross_curvature, offset_curvature = curvatures[0], curvatures[1], curvatures[2]
    loss = 0.0
    for i in range(len(weight)):
        r, w = unit_scores[i], weight[i]
        top = others[i]
        for k in range(n_late):
            score[k] = scale[k] * r[k] + offset[k]
        for k in range(n_late):
            top = max(top, score[k])
        for k in range(n_late):
            p[k] = fast_exp(score[k] - top)
        total = fast_exp(others[i] - top)
        for k in range(n_late):
            total += p[k]
        inverse_total = 1.0 / total
        for k in range(n_late):
            p[k] *= inverse_total
        if curved:
            for k in range(n_late):
                variance[k] = w * p[k] * (1.0 - p[k])
            for k in range(n_late):
                offset_curvature[k] += variance[k]
            for k in range(n_late):
                cross_curvature[k] += variance[k] * r[k]
            for k in range(n_late):
                scale_curvature[k] += variance[k] * r[k] * r[k]
        mine = own[i] - 1
        loss += w * (np.log(total) + top - (score[mine] if mine >= 0 else others[i]))
        if mine >= 0:
            p[mine] -= 1.0
        for k in range(n_late):
            offset_gradient[k] += w * p[k]
        for k in range(n_late):
            scale_gradient[k] += w * p[k] * r[k]
    return loss, gradient, curvatures

"""Sums over rows behind the reach and the level of classes that appeared late.

A row scores ``far_k r_ik + up_k`` for a late class ``k`` and ``others_i`` for all other classes
together; its probabilities are the softmax of these.
"""

from __future__ import annotations

import numpy as np

from likelier.jit import njit
from likelier.loops.exponential import FLAGS, fast_exp

# Sums over outputs may be reordered and scores are finite, which lets loops use the vector unit.
_compiled = njit(cache=True, nogil=True, fastmath=FLAGS | {"reassoc", "nnan"}, error_model="numpy")


@_compiled
def late_sums(reach, others, own, weight, far, up, curved):
    """Loss of all rows, its slopes by ``far`` and ``up`` of every class, and its curvatures.

    ``own`` is 0 for a row of a class that is held, else the number of its late class plus one.
    Slopes are ``(2, K)``; curvatures, which are 0 unless ``curved``, ``(3, K)``: of ``far``, of
    both, of ``up``. Loops write one array each: with more the compiler cannot rule out that they
    overlap.
    """
    n_late = reach.shape[1]
    score, p, spread = np.empty(n_late), np.empty(n_late), np.empty(n_late)
    slopes, curvatures = np.zeros((2, n_late)), np.zeros((3, n_late))
    far_slope, up_slope = slopes[0], slopes[1]
    far_far, far_up, up_up = curvatures[0], curvatures[1], curvatures[2]
    loss = 0.0
    for i in range(len(weight)):
        r, w = reach[i], weight[i]
        top = others[i]
        for k in range(n_late):
            score[k] = far[k] * r[k] + up[k]
        for k in range(n_late):
            top = max(top, score[k])
        for k in range(n_late):
            p[k] = fast_exp(score[k] - top)
        total = fast_exp(others[i] - top)
        for k in range(n_late):
            total += p[k]
        share = 1.0 / total
        for k in range(n_late):
            p[k] *= share
        if curved:
            for k in range(n_late):
                spread[k] = w * p[k] * (1.0 - p[k])
            for k in range(n_late):
                up_up[k] += spread[k]
            for k in range(n_late):
                far_up[k] += spread[k] * r[k]
            for k in range(n_late):
                far_far[k] += spread[k] * r[k] * r[k]
        mine = own[i] - 1
        loss += w * (np.log(total) + top - (score[mine] if mine >= 0 else others[i]))
        if mine >= 0:
            p[mine] -= 1.0
        for k in range(n_late):
            up_slope[k] += w * p[k]
        for k in range(n_late):
            far_slope[k] += w * p[k] * r[k]
    return loss, slopes, curvatures

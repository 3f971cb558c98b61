"""Benchmarks of `SVC` and `SVR` against LIBSVM, as scikit-learn ships it.

Single thread unless said otherwise, equal ``cache_size`` and tolerance, processor time, both tools
in turn in one process.
"""

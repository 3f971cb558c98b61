"""Fitting: what every estimator does around its mathematics."""

"""Benchmarks of the Bayesian linear classifier."""

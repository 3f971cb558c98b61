"""Benchmarks of naive Bayes: ``python -m benchmarks.nb`` measures and writes the page."""

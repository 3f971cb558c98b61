"""Benchmarks against the tools people use today; each package here is one command."""

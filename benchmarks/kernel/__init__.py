"""Benchmarks of kernel features and kernel machines."""

"""Bayesian kernel machines: learned length scales, evidence or Stein particles."""

"""Bayesian linear classification: Gibbs sampling by data augmentation."""

"""Multi-label classification: a Dirichlet-process mixture and a Bayesian classifier per label."""

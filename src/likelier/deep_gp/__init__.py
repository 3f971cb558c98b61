"""Deep Gaussian processes: power expectation propagation on inducing points."""

"""Deep Gaussian processes: quality, speed, and the likelihood alone."""

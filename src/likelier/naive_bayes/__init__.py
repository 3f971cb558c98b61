"""Naive Bayes: Gaussian, multinomial and Bernoulli class densities in closed form."""

"""Naive Bayes that generates: Gaussian, multinomial and Bernoulli, in closed form."""

from likelier.estimators.naive_bayes_counts import BernoulliNB, MultinomialNB
from likelier.estimators.naive_bayes_gaussian import GaussianNB

__all__ = ["BernoulliNB", "GaussianNB", "MultinomialNB"]

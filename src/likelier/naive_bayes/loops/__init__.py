"""Compiled inner loops of `likelier.naive_bayes`."""

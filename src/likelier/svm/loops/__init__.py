"""Compiled inner loops of `likelier.svm`."""

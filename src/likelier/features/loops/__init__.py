"""Compiled inner loops of `likelier.features`."""

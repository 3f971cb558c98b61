"""Compiled inner loops of `likelier.text`."""

"""Compiled inner loops of `likelier.fitting`."""

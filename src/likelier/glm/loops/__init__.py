"""Compiled inner loops of `likelier.glm`."""

"""Generalised linear models: scores = features x weights under a loss and a penalty."""

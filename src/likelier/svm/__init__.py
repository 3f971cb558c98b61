"""Support vector machines: the exact dual."""

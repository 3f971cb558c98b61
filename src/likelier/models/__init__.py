"""Models: parameters and what they mean."""

"""Inference: how parameters are found. Pure ``init`` and ``step``; State apart from Info."""

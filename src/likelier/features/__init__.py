"""Feature maps: from rows to features whose inner products are, or approach, a kernel."""

"""Feature maps whose inner products equal or approximate a kernel."""

"""Multi-label classification against common methods."""

"""Multi-label classification against what people use today."""

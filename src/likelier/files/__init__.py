"""Files of models and checkpoints: written whole or not at all, read with suspicion."""

"""One-pass learning: accuracy and time against a converged logistic regression."""

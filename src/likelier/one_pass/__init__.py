"""One-pass learning: each row is seen once, new classes may appear at any time."""

"""How the columns of a table are written: numbers and dates in text."""

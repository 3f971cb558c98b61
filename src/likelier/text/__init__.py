"""Text: documents to sparse features."""

"""Converts rows, as sources yield them, to Arrow batches of exactly the source's schema."""

"""Rows as authors yield them, converted to Arrow batches."""

"""Rows as authors yield them, made into Arrow batches."""

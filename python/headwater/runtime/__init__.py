"""Runs feeds in a Python process: threads, error policies, batches, and the protocol with the JVM."""

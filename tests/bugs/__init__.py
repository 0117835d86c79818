"""Broken sources, each beside one without the mistake; test_spot_the_bug.py runs them."""

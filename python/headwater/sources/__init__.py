"""The built-in sources, as values: call one with its options, give the result to `headwater.stream`."""

from headwater.sources.random_alpha import random_alpha

__all__ = ["random_alpha"]

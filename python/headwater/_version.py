"""The one place where the version stands: the build of the jar reads it from here."""

__version__ = "0.1.0"
"""The version of this package, which is also that of its jar; `attach` refuses another.

>>> print("headwater", hw.__version__)
headwater …
"""

"""Fuzz tests of every parser that reads bytes which somebody else has written.

`targets.py` has one function per parser, `inputs.py` makes the bytes, and `run.py` runs the targets for a
given time. The parsers of the JVM are fuzzed by the Scala suite `ForeignBytesSuite`.
"""

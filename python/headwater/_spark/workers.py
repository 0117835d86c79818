"""The Python of Spark's workers: they read partitioned sources, so it has to have headwater."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["python_of_new_context"]

_VARIABLE, _SETTING = "PYSPARK_PYTHON", "spark.pyspark.python"


@contextmanager
def python_of_new_context() -> Iterator[None]:
    """Where a local Spark is started meanwhile, and nobody has said which Python its workers run: this one.

    PySpark itself would take the `python3` of the PATH, which is often another.
    """
    from pyspark import SparkContext

    before = SparkContext._active_spark_context
    yield
    context = SparkContext._active_spark_context
    if context is None or context is before or not str(context.master).startswith("local"):
        return
    if _VARIABLE not in os.environ and not context.getConf().contains(_SETTING):
        os.environ[_VARIABLE] = context.pythonExec = sys.executable

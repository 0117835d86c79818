"""Starting Spark's JVM with the jar in it, whatever else is in `spark.jars`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from headwater._spark import conf
from headwater._spark.jar import verified_jar
from headwater._spark.java import usable_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["jar_in_spark_jars"]

_SUBMIT_ARGS = "PYSPARK_SUBMIT_ARGS"


@contextmanager
def jar_in_spark_jars(builder: SparkSession.Builder) -> Iterator[None]:
    """Append the jar to `spark.jars` while the builder starts a JVM, once there is a Java to start it with.

    Does nothing where a JVM runs already, whose class path is fixed, nor for a Connect server elsewhere.
    """
    from headwater._spark.bridge import jvm_started

    options: dict[str, str] = builder._options
    remote = options.get("spark.remote", os.environ.get("SPARK_REMOTE", ""))
    if jvm_started() or remote.startswith("sc://"):
        yield
        return
    if not (_conf_dir() / "spark-env.sh").is_file():  # which may choose another Java for Spark
        usable_java()
    jar = str(verified_jar())
    set_before = os.environ.get(_SUBMIT_ARGS)
    args = "pyspark-shell" if set_before is None else set_before
    jars = conf.submit_jars(args) or options.get("spark.jars") or conf.default_jars(args, _conf_dir())
    if (
        "spark.jars" in options
    ):  # the SparkContext takes the builder's list over what its JVM was started with
        builder.config("spark.jars", conf.append_jar(options["spark.jars"], jar))
    os.environ[_SUBMIT_ARGS] = conf.with_jars(args, conf.append_jar(jars, jar))
    try:
        yield
    finally:
        if set_before is None:
            del os.environ[_SUBMIT_ARGS]
        else:
            os.environ[_SUBMIT_ARGS] = set_before


def _conf_dir() -> Path:
    from pyspark.find_spark_home import _find_spark_home

    return Path(os.environ.get("SPARK_CONF_DIR") or Path(_find_spark_home()) / "conf")

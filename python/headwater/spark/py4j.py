"""The crossing into Spark's JVM. The only module here that knows py4j and PySpark's private handles.

Classes are looked up through the driver's base class loader and by name, never as `jvm.headwater.X`: py4j
answers an unknown class with a JavaPackage, whose use fails with "'JavaPackage' object is not callable", and
it looks only where the calling thread looks.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.errors import HeadwaterError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Driver", "is_stopped", "jvm_started"]

_MUTABLE = "org.apache.spark.util.MutableURLClassLoader"
_OTHER_JAR = "start Spark with the jar that `headwater jar` prints in its place"


def jvm_started() -> bool:
    """Whether this Python already has a JVM: its class path is then fixed, whatever a builder says."""
    from pyspark import SparkContext

    return "PYSPARK_GATEWAY_PORT" in os.environ or SparkContext._gateway is not None


def is_stopped(spark: SparkSession) -> bool:
    """A Connect session says so itself; of a classic one, the SparkContext has lost its JVM."""
    said: bool | None = getattr(spark, "is_stopped", None)
    return spark.sparkContext._jsc is None if said is None else said


class Driver:
    """The driver's JVM of a classic session, as far as the jar is concerned."""

    def __init__(self, spark: SparkSession) -> None:
        context = spark.sparkContext
        self._context = context
        self._gateway: Any = context._gateway
        self._jvm: Any = context._jvm
        self._loader = self._base_loader()

    @property
    def scala_version(self) -> str:
        return str(self._jvm.scala.util.Properties.versionNumberString())

    @property
    def loader_name(self) -> str:
        return str(self._loader.getClass().getName())

    def jar_version(self) -> str | None:
        """What the jar in the driver says of itself; None where there is none that every thread can see."""
        version = self._version_class()
        if version is None:
            return None
        from py4j.protocol import Py4JError

        try:
            no_types = self._gateway.new_array(self._jvm.java.lang.Class, 0)
            no_args = self._gateway.new_array(self._jvm.java.lang.Object, 0)
            return str(version.getMethod("current", no_types).invoke(None, no_args))
        except Py4JError as error:
            raise HeadwaterError(
                f"headwater.Version is in the session (from {_origin(version)}) and cannot be called: "
                f"{_java_message(error)}",
                _OTHER_JAR,
            ) from error

    def jar_origin(self) -> str:
        """The file or folder that headwater's classes came from."""
        version = self._version_class()
        return "nowhere" if version is None else _origin(version)

    def add_jar(self, jar: Path) -> None:
        """Make the jar's classes visible in every thread of the driver."""
        from py4j.java_gateway import is_instance_of

        if not is_instance_of(self._gateway, self._loader, _MUTABLE):
            raise HeadwaterError(
                "this session runs without headwater's jar, and the driver's class loader "
                f"({self.loader_name}) cannot be added to",
                "start Spark with the jar, with "
                f"`spark-submit --jars {jar}`, `spark.jars={jar}` in its configuration, or hw.session()",
            )
        self._loader.addURL(self._jvm.java.io.File(str(jar)).toURI().toURL())

    def executors_have(self, origin: str) -> bool:
        """Whether Spark hands the jar with that origin to executors; each new SparkContext starts without."""
        name = origin.rpartition("/")[2]
        listed = self._context._jsc.sc().listJars()
        return any(listed.apply(i).rpartition("/")[2] == name for i in range(listed.size()))

    def add_to_executors(self, jar: Path) -> None:
        self._context._jsc.sc().addJar(str(jar))

    def open_bridge(self, unix: bool) -> dict[str, str]:
        """Where the JVM listens for this process, and the secret to say there."""
        return dict(json.loads(self._bridge().open(unix)))

    def register(self, name: str) -> str:
        """Make `format(name)` known. The answer is empty, or says why only the plain form works."""
        from pyspark.errors import IllegalArgumentException

        try:
            return str(self._bridge().register(name))
        except IllegalArgumentException as error:
            raise ValueError(str(error)) from None

    def hand_over(self, feed: str, function: Any) -> None:
        """Give the JVM what its tasks run to read the partitions of that feed's source."""
        self._bridge().reader(feed, self.reader_column(function))

    @staticmethod
    def reader_column(function: Any) -> Any:
        """As `DataFrame.mapInArrow` makes it of a function, over the column `task`. Without pandas, for which
        PySpark asks there and has no use."""
        from pyspark.sql.functions import col
        from pyspark.sql.types import BinaryType, StringType, StructType
        from pyspark.sql.udf import UserDefinedFunction
        from pyspark.util import PythonEvalType

        answer = StructType().add("report", StringType()).add("rows", BinaryType())
        reader = UserDefinedFunction(
            function, answer, name="headwater", evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF
        )
        return reader(col("task"))._jc

    def status(self) -> dict[str, dict[str, Any]]:
        """What waits in the buffers of Python's feeds, and how far queries have read partitions."""
        return dict(json.loads(self._bridge().status()))

    @property
    def is_gone(self) -> bool:
        """The JVM has ended, or this process has started another one."""
        from pyspark import SparkContext

        process = getattr(self._gateway, "proc", None)  # none where the JVM has started this Python
        has_ended = process is not None and process.poll() is not None
        return SparkContext._gateway is not self._gateway or has_ended

    def _bridge(self) -> Any:
        return self._loader.loadClass("headwater.bridge.Bridge$").getField("MODULE$").get(None)

    def _base_loader(self) -> Any:
        """The highest loader that can be added to: what `ADD JAR` puts below belongs to one thread only."""
        from py4j.java_gateway import is_instance_of

        loader = self._jvm.java.lang.Thread.currentThread().getContextClassLoader()
        parent = loader.getParent()
        while parent is not None and is_instance_of(self._gateway, parent, _MUTABLE):
            loader, parent = parent, parent.getParent()
        return loader

    def _version_class(self) -> Any | None:
        from py4j.protocol import Py4JJavaError

        try:
            return self._loader.loadClass("headwater.Version")
        except Py4JJavaError as error:
            if error.java_exception.getClass().getName() == "java.lang.ClassNotFoundException":
                return None
            raise HeadwaterError(
                f"headwater's jar is there, and its classes cannot be loaded: {_java_message(error)}",
                _OTHER_JAR,
            ) from error


def _origin(java_class: Any) -> str:
    source = java_class.getProtectionDomain().getCodeSource()
    return "an unknown place" if source is None else str(source.getLocation().getPath())


def _java_message(error: Exception) -> str:
    java = getattr(error, "java_exception", None)
    return str(error).partition("\n")[0] if java is None else str(java.toString())
